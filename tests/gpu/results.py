#!/usr/bin/env python3
# results.py - docs/results/gpu.json: which kernel texts passed which parts of check.sh, on which GPU, at which commit.
"""
    results.py passed FILE PART TEXTS GPU DRIVER NVRTC COMMIT   these texts passed the part; a new FILE is made
    results.py failed FILE PART GPU                             the part failed: what it passed earlier is taken out
    results.py changed FILE TEXTS                               which of these texts have not run on a GPU

TEXTS is a file that FTX_TEXTS named (ftxc help env): lines of target, entry and hash. A part that runs again on the same GPU
takes the place of its last run. A FILE that is wrong ends this program with 1 and the reason."""
import collections
import contextlib
import datetime
import fcntl
import json
import os
import re
import sys

ABOUT = ('What tests/gpu/check.sh found on GPUs, written by it: for each part that passed the hashes of the kernel texts '
         'that it compiled, by target and family. docs/testing.md says how to read it.')
COMPARED = ['fp32', 'bf16', 'fp16', 'families', 'odd', 'many', 'beam', 'samples', 'ptx', 'encode', 'device', 'swap', 'offload',
            'ranks', 'processes']  # with references
RAN = ['memory', 'bench', 'texts', 'sequences', 'trace', 'sanitize', 'processes_times']  # nothing looks at the results
FIELDS = {'part': '|'.join(COMPARED + RAN), 'gpu': '.+', 'driver': r'[\d.]+', 'nvrtc': r'\d+\.\d+',
          'commit': '[0-9a-f]{7,40}', 'date': r'\d{4}-\d\d-\d\d'}
HASHES = re.compile('[0-9a-f]{16}( [0-9a-f]{16})*')


def verify(runs):
    for i, run in enumerate(runs):
        for field, form in FIELDS.items():
            if not re.fullmatch(form, run[field]):
                raise ValueError('run %d: "%s" is "%s"' % (i + 1, field, run[field]))
        if set(run) != {*FIELDS, 'texts'}:
            raise ValueError('run %d has other fields than %s, texts' % (i + 1, ', '.join(FIELDS)))
        for target, families in run['texts'].items():
            for family, hashes in families.items():
                if not HASHES.fullmatch(hashes):
                    raise ValueError('run %d: the hashes of %s for %s' % (i + 1, family, target))


def read(path):
    with open(path) as f:
        runs = json.load(f)['runs']
    verify(runs)
    return runs


def write(path, runs):
    verify(runs)
    runs.sort(key=lambda run: (run['gpu'], (COMPARED + RAN).index(run['part'])))
    with open(path + '.part', 'w') as f:
        json.dump({'about': ABOUT, 'runs': runs}, f, indent=1)
        f.write('\n')
    os.replace(path + '.part', path)


def read_texts(path):
    """target -> family -> the hashes of its texts"""
    texts = {}
    with open(path) as f:
        for line in f:
            target, entry, key = line.split()
            texts.setdefault(target, {}).setdefault(entry.split('__')[0], set()).add(key)
    return texts


@contextlib.contextmanager
def alone(path):
    """Several check.sh may write one file: each waits for the other, by a lock on the folder."""
    folder = os.open(os.path.dirname(path) or '.', os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield
    os.close(folder)


def others(path, part, gpu):
    """The runs of a file but those of this part on this GPU."""
    return [run for run in read(path) if (run['part'], run['gpu']) != (part, gpu)] if os.path.exists(path) else []


def passed(path, part, texts, gpu, driver, nvrtc, commit):
    texts = {target: {family: ' '.join(sorted(keys)) for family, keys in sorted(families.items())}
             for target, families in sorted(read_texts(texts).items())}
    run = dict(part=part, gpu=gpu, driver=driver, nvrtc=nvrtc, commit=commit, date=datetime.date.today().isoformat(),
               texts=texts)
    with alone(path):
        write(path, others(path, part, gpu) + [run])


def failed(path, part, gpu):
    with alone(path):
        write(path, others(path, part, gpu))


def changed(path, texts):
    known = {True: collections.defaultdict(set), False: collections.defaultdict(set)}
    runs = read(path)
    for run in runs:
        for target, families in run['texts'].items():
            for hashes in families.values():
                known[run['part'] in COMPARED][target].update(hashes.split())
    for run in runs:
        print('gpu %s: passed at %s on %s, %s, driver %s, NVRTC %s' % (
            run['part'], run['commit'][:12], run['date'], run['gpu'], run['driver'], run['nvrtc']))
    for target, families in sorted(read_texts(texts).items()):
        everything = set().union(*families.values())
        compared = everything & known[True][target]
        ran = everything & known[False][target] - compared
        rest = ['%s %d of %d' % (family, len(keys - compared - ran), len(keys))
                for family, keys in sorted(families.items()) if keys - compared - ran]
        print('gpu %s: of %d kernel texts of the specs %d have passed a comparison with references, %d more have run, '
              '%d have not run as they are now%s' % (
                  target, len(everything), len(compared), len(ran), len(everything - compared - ran),
                  ': ' + ', '.join(rest) if rest else ''))


COMMANDS = {'passed': (passed, 7), 'failed': (failed, 3), 'changed': (changed, 2)}

if len(sys.argv) < 2 or len(sys.argv) - 2 != COMMANDS.get(sys.argv[1], (None, -1))[1]:
    raise SystemExit(__doc__)
try:
    COMMANDS[sys.argv[1]][0](*sys.argv[2:])
except KeyError as e:
    raise SystemExit('error: %s: %s is missing' % (sys.argv[2], e))
except (OSError, ValueError, TypeError, AttributeError) as e:
    raise SystemExit('error: %s: %s' % (sys.argv[2], e))
