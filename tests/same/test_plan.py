#!/usr/bin/env python3
# test_plan.py - plan.py reads artifacts of the format before and of today, field by field.
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import plan

# As tests/runtime/test_formats.c says how the artifacts beside it were made.
FORMATS = 'tests/runtime/formats'
COMMAND = 'compile tests/runtime/settings.lua -t cpu --no-weights -D decode.width=1 -D limits.sequences=1 -q -o'


class Formats(unittest.TestCase):
    def test_same(self):
        newest = max(os.listdir(FORMATS), key=lambda name: int(name.split('.')[0]))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'now.ftx')
            subprocess.run([os.environ['FTXC'], *COMMAND.split(), path], check=True)
            now, before = plan.Artifact(path), plan.Artifact(os.path.join(FORMATS, newest))
        self.assertEqual(now.format, before.format + 1)
        self.assertEqual(list(now.plans), [0])
        for artifact in (before, now):
            parts = artifact.plans[0].parts
            head = parts['spaces and named blocks']  # target, two types, eight spaces, the lower bound, named blocks
            self.assertEqual(len(head), 3 + 8 + 1 + 64)
            self.assertEqual(head[:3], (0, 3, 1))
            self.assertEqual((head[3], head[10]), (0, 0))  # the space that is none, and that behind the last
            self.assertEqual(parts['exchange'], (0,))
            self.assertTrue(parts['launches'] and parts['operands'] and parts['programs'])
        self.assertEqual(list(now.plans[0].parts), list(before.plans[0].parts))


if __name__ == '__main__':
    unittest.main()
