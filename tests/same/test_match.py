#!/usr/bin/env python3
# test_match.py - match.py calls kernels the same whose texts differ by names and places, and no others.
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import match
import text

FLAGS = '--gpu-architecture=sm_90a --std=c++17 --minimal'

TYPES = '''#pragma once
#define DEVICE __device__ __forceinline__
#define TWICE(x) ((x) + (x))
typedef unsigned int u32;
enum { FIRST, SECOND, FIFTH = 5, SIXTH };
struct Args { const float *x, *w; float *y; int rows; };
struct Extent { int from, to; };
template <class T, int N> struct Vec {
    T v[N];
    DEVICE T &operator[](int i) { return v[i]; }
};
'''
SUMS = '''#pragma once
#include "types.cuh"
// The sum of a row.
template <int N> DEVICE float row_sum(const float (&x)[N], int from)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = from; i < N; i++)
        sum += x[i];
    return sum;
}
DEVICE float second(const float *x) { return x[1]; }
DEVICE float scaled(float x, float by) { return x * by - by; }
DEVICE float scaled(float x, int by) { return x / by; }
template <class K> struct Shape {
    static constexpr int WARPS = K::THREADS / 32, TILE = WARPS * K::EACH;
    int first, last;
    DEVICE Shape(int at) : first(at * TILE), last(first + TILE) {}
    DEVICE int width() const { return last - first; }
};
DEVICE int never(int a) { return a + 1; }
'''
KERNEL = '''#include "types.cuh"
#include "sums.cuh"

template <class K> DEVICE void work(const Args &a)
{
    using S = Shape<K>;
    __shared__ float room[K::THREADS];
    float x[4];
    S shape(blockIdx.x);
    const int at = shape.first + threadIdx.x, count = shape.width();
#pragma unroll 2
    for (int i = 0; i < 4; i++)
        x[i] = at + i < a.rows ? a.x[at + i] : 0.0f;
    const auto add = [&](float v, int id) { return v + x[id] * (float)count; };
    {
        const int at = shape.last;
        x[0] += (float)at;
    }
    room[threadIdx.x] = add(row_sum<4>(x, 1), SECOND);
    asm volatile("bar.sync %0;" ::"n"(0) : "memory");
    Extent e = {at, count};
    if (e.from < e.to && a.rows > FIFTH)
        a.y[at] = scaled(room[threadIdx.x], 2.0f) + a.w[at] + TWICE(x[SIXTH - FIFTH]) + second(a.w);
}

struct Config {
    static constexpr int THREADS = 128, EACH = 4;
};
extern "C" __global__ void __launch_bounds__(Config::THREADS, 1)
KERNEL(const Args a) { work<Config>(a); }
'''
FILES = {'types.cuh': TYPES, 'sums.cuh': SUMS, 'kernel': KERNEL}

# What is replaced in which file, everywhere in it. `same`: the compiler makes the same code of it.
SAME = {
    'comments': [('sums.cuh', '// The sum of a row.', '/* sums */')],
    'a local name': [('kernel', 'count', 'width_of_tile')],
    'a parameter': [('sums.cuh', 'float by) { return x * by - by; }', 'float f) { return x * f - f; }')],
    'a parameter of a template': [('sums.cuh', 'class K', 'class C'), ('sums.cuh', 'K::', 'C::')],
    'a function': [('sums.cuh', 'row_sum', 'sum_of'), ('kernel', 'row_sum', 'sum_of')],
    'a struct': [('sums.cuh', 'Shape', 'Tiling'), ('kernel', 'Shape', 'Tiling')],
    'a constant of a struct': [('sums.cuh', 'TILE', 'TILE_M')],
    'a constant of the kernel': [('sums.cuh', 'EACH', 'PER_WARP'), ('kernel', 'EACH', 'PER_WARP')],
    'a field': [('types.cuh', 'from, to', 'start, end'), ('kernel', 'e.from < e.to', 'e.start < e.end')],
    'a field of one struct, called as that of another': [
        ('types.cuh', 'from, to', 'first, last'), ('kernel', 'e.from < e.to', 'e.first < e.last')],
    'a function of a struct': [('sums.cuh', 'width()', 'columns()'), ('kernel', 'width()', 'columns()')],
    'an enumerator': [('types.cuh', 'FIFTH', 'LIMIT'), ('kernel', 'FIFTH', 'LIMIT')],
    'a macro': [('types.cuh', 'TWICE', 'DOUBLED'), ('kernel', 'TWICE', 'DOUBLED')],
    'what a macro stands for': [('kernel', 'TWICE(x[SIXTH - FIFTH])', '((x[SIXTH - FIFTH]) + (x[SIXTH - FIFTH]))')],
    'an inner name that hides another': [('kernel', 'const int at = shape.last;\n        x[0] += (float)at;',
                                          'const int end = shape.last;\n        x[0] += (float)end;')],
    'order of definitions': [('sums.cuh', 'DEVICE int never(int a) { return a + 1; }\n', ''),
                             ('sums.cuh', 'template <class K> struct Shape',
                              'DEVICE int never(int a) { return a + 1; }\ntemplate <class K> struct Shape')],
    'order of constants': [('kernel', 'THREADS = 128, EACH = 4', 'EACH = 4, THREADS = 128')],
    'what nothing uses': [('sums.cuh', 'return a + 1;', 'return a + 2;'),
                          ('kernel', 'EACH = 4;', 'EACH = 4, UNUSED = 7;')],
    'a declaration ahead': [('kernel', 'template <class K> DEVICE', 'struct Config;\ntemplate <class K> DEVICE')],
    'an assertion': [('kernel', 'struct Config', 'static_assert(sizeof(int) == 4, "int");\nstruct Config')],
    'a string in pieces': [('kernel', '"bar.sync %0;"', '"bar." "sync %0;"')],
    'a header in two': [('sums.cuh', 'template <class K> struct Shape {', '#include "shape.cuh"\nCUT'),
                        ('sums.cuh', '#pragma once', '#pragma once\n#include "more.cuh"')],
    'an enumerator as an index': [('sums.cuh', 'x[1]', 'x[SECOND]')],
}
DIFFERENT = {
    'an operator': [('sums.cuh', 'x * by - by', 'x * by + by')],
    'a comparison': [('sums.cuh', 'i < N', 'i <= N')],
    'a constant': [('kernel', 'EACH = 4', 'EACH = 8')],
    'the type of a constant': [('kernel', 'row_sum<4>(x, 1)', 'row_sum<4>(x, 1u)')],
    'swapped arguments': [('kernel', 'scaled(room[threadIdx.x], 2.0f)', 'scaled(2.0f, room[threadIdx.x])')],
    'a type': [('sums.cuh', 'float sum', 'double sum')],
    'the type of a field': [('types.cuh', 'int rows', 'long rows')],
    'order of fields': [('types.cuh', 'int from, to;', 'int to, from;')],
    'two fields swapped': [('kernel', 'e.from < e.to', 'e.to < e.from')],
    'two fields of the same type': [('kernel', 'a.w[at]', 'a.x[at]')],
    'a field of CUDA': [('kernel', 'threadIdx.x, count', 'threadIdx.y, count')],
    'a variable of CUDA': [('kernel', 'shape(blockIdx.x)', 'shape(gridDim.x)')],
    'another local of the type': [('kernel', 'Extent e = {at, count}', 'Extent e = {count, at}')],
    'an inner name that no longer hides': [('kernel', 'const int at = shape.last;', 'const int end = shape.last;')],
    'a name that hides': [('kernel', '{\n        const int at', '{\n        const int count')],
    'the order of initial values': [('sums.cuh', 'first(at * TILE), last(first + TILE)', 'first(at * TILE), last(at + TILE)')],
    'what a closure takes': [('kernel', '[&](float v, int id)', '[=](float v, int id)')],
    'parameters of a closure': [('kernel', '[&](float v, int id)', '[&](float id, int v)')],
    'the value of an enumerator': [('types.cuh', 'FIFTH = 5', 'FIFTH = 6')],
    'the place of an enumerator': [('types.cuh', 'FIRST, SECOND', 'SECOND, FIRST')],
    'another enumerator as an index': [('sums.cuh', 'x[1]', 'x[FIRST]')],
    'an enumerator in place of a number': [('sums.cuh', 'first(at * TILE)', 'first(at * TILE * SECOND)')],
    'a macro that computes twice': [('types.cuh', '((x) + (x))', '(2 * (x))')],
    'brackets of a macro': [('types.cuh', '((x) + (x))', '(x) + (x)')],
    'unrolling': [('kernel', '#pragma unroll 2', '#pragma unroll 4')],
    'no unrolling': [('sums.cuh', '#pragma unroll\n', '')],
    'volatile': [('kernel', 'asm volatile', 'asm')],
    'an instruction': [('kernel', 'bar.sync %0', 'bar.arrive %0')],
    'what an instruction touches': [('kernel', ' : "memory"', '')],
    'an attribute': [('types.cuh', '__forceinline__', '__noinline__')],
    'bounds of a launch': [('kernel', 'Config::THREADS, 1', 'Config::THREADS, 2')],
    'const': [('sums.cuh', 'const float (&x)[N]', 'float (&x)[N]')],
    'another overload': [('kernel', '2.0f) +', '2) +')],
    'an overload less': [('sums.cuh', 'DEVICE float scaled(float x, int by) { return x / by; }\n', '')],
    'the body of an overload': [('sums.cuh', 'x / by', 'x + by')],
    'an argument of a template': [('kernel', 'row_sum<4>', 'row_sum<3>')],
    'a shadowed parameter of a template': [('sums.cuh', 'float sum = 0.0f;', 'constexpr int N = 2; float sum = 0.0f;')],
    'a constructor': [('types.cuh', 'struct Extent { int from, to; };', 'struct Extent { int from, to; DEVICE Extent(int, int) {} };')],
    'an operator of a struct': [('types.cuh', 'Args { const', 'Args { DEVICE int operator()() { return 1; } const')],
    'alignment': [('types.cuh', 'struct Extent', 'struct alignas(16) Extent')],
    'two functions for one': [('sums.cuh', 'template <class K> struct', 'DEVICE float other(float x, float by) { return x * by - by; }\n'
                               'DEVICE float other(float x, int by) { return x / by; }\ntemplate <class K> struct'),
                              ('kernel', '+ a.w[at]', '+ other(a.w[at], 1.0f) - scaled(a.w[at], 1.0f)')],
    'a condition of the preprocessor': [('sums.cuh', 'return last - first;',
                                         '\n#if __CUDA_ARCH__ >= 900\nreturn last;\n#else\nreturn last - first;\n#endif\n')],
}
UNCLEAR = {
    'a condition with a name of the compiler': [('types.cuh', 'typedef', '#ifdef __CUDACC_RTC__\n#endif\ntypedef')],
    'a jump': [('kernel', 'Extent e', 'goto end; end: Extent e')],
    'a struct in a function': [('kernel', 'Extent e', 'struct Own { int a; }; Extent e')],
    'a macro in a pragma': [('kernel', '#pragma unroll 2', '#pragma unroll TWICE(1)')],
    'a namespace': [('sums.cuh', 'DEVICE int never(int a) { return a + 1; }', 'namespace n { int never(int a) { return a; } }')],
}


folder = tempfile.TemporaryDirectory()


def tearDownModule():
    folder.cleanup()


class Tree:
    """Files in a folder, as a tree with kernels."""

    def __init__(self, files):
        root = tempfile.mkdtemp(dir=folder.name)
        os.mkdir(root + '/kernels')
        for name, source in files.items():
            with open('%s/kernels/%s' % (root, name), 'w') as f:
                f.write(source)
        self.source = match.Source(text.Tree(root))
        self.body = files['kernel']


def changed(edits):
    files = dict(FILES)
    for name, old, new in edits:
        if old not in files[name]:
            raise AssertionError('%s has no %r' % (name, old))
        files[name] = files[name].replace(old, new)
    if 'CUT' in files['sums.cuh']:  # one header becomes three
        head, tail = files['sums.cuh'].split('#include "shape.cuh"\nCUT')
        cut = tail.index('DEVICE int never')
        files['sums.cuh'] = head + '#include "shape.cuh"\n' + tail[cut:]
        files['shape.cuh'] = '#pragma once\n#include "types.cuh"\ntemplate <class K> struct Shape {' + tail[:cut]
        files['more.cuh'] = '#pragma once\n'
    return files


def compare(a, b, flags=FLAGS):
    return match.Matcher(a.source, b.source).compare(a.body, b.body, flags)


class Texts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = Tree(FILES)

    def both_ways(self, edits):
        other = Tree(changed(edits))
        one, two = compare(self.base, other), compare(other, self.base)
        self.assertEqual(one is None, two is None)
        return one

    def test_itself(self):
        self.assertIsNone(self.both_ways([]))

    def test_same(self):
        for what, edits in SAME.items():
            with self.subTest(what):
                self.assertIsNone(self.both_ways(edits))

    def test_different(self):
        for what, edits in DIFFERENT.items():
            with self.subTest(what):
                self.assertNotIn('cannot be read', self.both_ways(edits) or 'cannot be read')

    def test_unclear(self):
        for what, edits in UNCLEAR.items():
            with self.subTest(what):
                self.assertIn('cannot be read', self.both_ways(edits) or '')

    def test_many_at_once(self):
        names = ('comments', 'a local name', 'a parameter', 'a function', 'a struct', 'a constant of a struct',
                 'a field of one struct, called as that of another', 'an enumerator', 'a macro', 'an assertion',
                 'a declaration ahead', 'a string in pieces')
        self.assertIsNone(self.both_ways([edit for name in names for edit in SAME[name]]))

    def test_architecture(self):
        """A condition counts for the architectures where it matters."""
        other = Tree(changed([('sums.cuh', 'x * by - by', 'x * by\n#if __CUDA_ARCH__ >= 900\n + by\n#else\n - by\n#endif\n')]))
        for arch, same in (('sm_80', True), ('compute_80', True), ('sm_90a', False), ('sm_120a', False)):
            self.assertEqual(compare(self.base, other, FLAGS.replace('sm_90a', arch)) is None, same, arch)
        self.assertIn('flags', compare(self.base, other, FLAGS + ' -DN=1'))

    def test_numbers(self):
        """Kernels that differ in numbers alone are read once, and each number counts."""
        both = match.Matcher(self.base.source, self.base.source)
        for a, b, same in (('128', '128', True), ('256', '256', True), ('128', '256', False), ('128', '128u', False)):
            sources = [KERNEL.replace('= 128', '= ' + n) for n in (a, b)]
            self.assertEqual(both.compare(*sources, FLAGS) is None, same)
        self.assertEqual(len(both.known), 1)


class Tokens(unittest.TestCase):
    """Each token of a function that the kernel uses counts: dropped, doubled or replaced, it is seen or refused."""

    def test_each_token(self):
        base, missed = Tree(FILES), []
        both = match.Matcher(base.source, base.source)
        for m in text.TOKEN.finditer(KERNEL, KERNEL.index('using S'), KERNEL.index('struct Config')):
            if m.lastgroup in ('comment', 'newline', 'blank', 'join'):
                continue
            for new in ('', m.group() + ' ' + m.group(), '7', 'a', '+'):
                if new != m.group() and both.compare(KERNEL, KERNEL[:m.start()] + new + KERNEL[m.end():], FLAGS) is None:
                    missed.append((m.start(), m.group(), new))
        self.assertEqual(missed, [])


if __name__ == '__main__':
    unittest.main()
