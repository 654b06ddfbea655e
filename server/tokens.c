/* tokens.c - /tokenize and /detokenize, as vLLM has them: token ids of a text or a conversation, and back. */
#include <stdlib.h>
#include <string.h>

#include "prompt.h"

static void print_tokens(Text *t, const Served *m, const int32_t *ids, size_t n)
{
    text_printf(t, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", n, m->info.context);
    for (size_t i = 0; i < n; i++)
        text_printf(t, "%s%d", i ? "," : "", ids[i]);
    text_put(t, "]}");
}

static bool tokenize(Server *s, Exchange *x, json_t *root, Fault *f)
{
    Served *m = server_model(s, root, f);
    const json_t *prompt = body_field(root, "prompt");
    Part p = {0};
    Text t = {0};
    bool done, special = true;

    if (!m || !body_bool(root, "add_special_tokens", &special, f))
        return false;
    if (body_field(root, "messages"))
        done = prompt_chat(m, root, body_field(root, "tools") != NULL, &p, f);
    else if (json_is_string(prompt))
        done = prompt_tokenize(m, special, json_string_value(prompt), json_string_length(prompt), &p.ids, &p.n_ids, f);
    else
        done = fault(f, "prompt", "prompt: expected a string, or messages");
    if (done) {
        print_tokens(&t, m, p.ids, p.n_ids);
        answer_json(x, &t);
    }
    free(p.ids);
    return done;
}

static bool detokenize(Server *s, Exchange *x, json_t *root, Fault *f)
{
    Served *m = server_model(s, root, f);
    const json_t *tokens = body_field(root, "tokens");
    Text text = {0}, t = {0};
    int32_t *ids;
    size_t n;
    bool done;

    if (!m)
        return false;
    if (!json_is_array(tokens))
        return fault(f, "tokens", "tokens: expected a list of token ids");
    if (!body_ids(tokens, "tokens", m->info.vocab, &ids, &n, f))
        return false;
    done = prompt_detokenize(m, ids, n, false, &text, f);
    if (done) {
        text_put(&t, "{\"prompt\":");
        text_json(&t, text.at, text.n);
        text_put(&t, "}");
        answer_json(x, &t);
    }
    text_free(&text);
    free(ids);
    return done;
}

void route_tokenize(Server *s, Exchange *x)
{
    with_body(s, x, tokenize);
}

void route_detokenize(Server *s, Exchange *x)
{
    with_body(s, x, detokenize);
}
