"""test_chat.py - conversations from Python: prompts of the chat template, answers of `ftxc run --messages`; the prefix cache
that a conversation's turns share."""
import json
import os
import unittest

import ftxc
import models

TURN = [{"role": "user", "content": "Tell a story. <|end_of_text|>"}]


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = models.model("chat")

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def test_template(self):
        text = self.model.apply_chat_template(TURN, tokenize=False, mood=", gladly")
        self.assertEqual(text, "<|begin_of_text|>user: Tell a story. <|end_of_text|>\nassistant, gladly:")
        ids = self.model.apply_chat_template(TURN)
        self.assertEqual(ids, self.model.tokenize("user: Tell a story. <|end_of_text|>\nassistant:", literal=True))
        self.assertEqual(self.model.apply_chat_template(TURN, add_generation_prompt=False, tokenize=False)[-1], ":")
        self.assertEqual(self.model.apply_chat_template(TURN, tools=[{"name": "story"}], tokenize=False),
                         "story: Tell a story. <|end_of_text|>")
        long = self.model.apply_chat_template([{"role": "user", "content": "word " * 3000}])
        self.assertEqual(len(long), len(self.model.tokenize("user: " + "word " * 3000 + "\nassistant:")))

    def test_as_ftxc_run(self):
        file = os.path.join(os.path.dirname(models.path("chat")), "messages.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump(TURN, f)
        theirs = models.ftxc_json("run", models.path("chat"), "--messages", file, "-n", 12, "--seed", 3, "--threads", 1)[0]
        for mine in (self.model.generate(TURN, max_new=12, seed=3), self.model.generate([TURN, "a"], max_new=12, seed=3)[0]):
            self.assertEqual((mine.text, mine.ids), (theirs["text"], theirs["ids"]))
        self.assertEqual("".join(map(str, self.model.stream(TURN, max_new=12, seed=3))), theirs["text"])

    def test_refusals(self):
        with self.assertRaisesRegex(ftxc.InvalidError, "no turn for critic"):
            self.model.generate([{"role": "critic", "content": "no"}])
        with self.assertRaisesRegex(ValueError, 'no chat template "other"'):
            self.model.apply_chat_template(TURN, template="other")
        with self.assertRaises(TypeError):
            self.model.apply_chat_template([{"role": object()}])

    def test_turns(self):
        with models.model("chat", prefix_cache=True, overcommit=True) as model:
            messages, known = list(TURN), 0
            for _ in range(3):
                answer = model.generate(messages, max_new=20, temperature=0, ignore_eos=True)
                self.assertEqual(answer.ids, self.model.generate(messages, max_new=20, temperature=0, ignore_eos=True).ids)
                self.assertGreaterEqual(answer.cached_tokens, known)
                self.assertLess(answer.cached_tokens, answer.prompt_tokens)
                known = (answer.prompt_tokens - 8) // 16 * 16  # the answer may be tokenized otherwise than it was written
                messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "And then?"}]
            self.assertGreater(answer.cached_tokens, 0)
            self.assertEqual(self.model.generate(TURN, max_new=2).cached_tokens, 0)


if __name__ == "__main__":
    unittest.main()
