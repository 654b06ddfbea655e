// matmul.cu - contract of a cuBLASLt node:  y[M,N] = act(x[M,K] w[N,K]^T + b) or ... + r.
//
// No text: the runtime calls the library with the constants of FtxMatmulConst, in that order. It
// serves steps of any T, where no row is computed that nobody needs, and decode programs of more than
// 64 rows, as nodes of a graph; up to T = 64 our own kernels do, with programmatic edges.
//
// cuBLASLt adds a residual (beta = 1) before its activation, so the two exclude each other here. A
// bias has the type of y. Its GELU is the tanh form; in fp32 it is not exact enough to rely on.
//@ kernel  matmul
//@ rank    350
//@ device  matmul
//@ args    x[M,K] w[N,K] b[N]:type(y) r[M,N] -> y[M,N]
//@ match   y = linear(x, w, b?)            | ACT=0
//@ match   y = add(linear(x, w, b?), r)    | ACT=0
//@ match   y = act(linear(x, w, b?))       | ACT=act.kind
//@ consts  ROWS_S: M_IS_S  N: N  K: K  X: type(x)  W: type(w)  Y: type(y)  ACT: ACT
//@ fits    (BUCKET == 0 || T_MAX > 64) && X == W
//@ fits    ACT == none || ACT == relu || (ACT == gelu_tanh && sizeof(X) == 2)
//@ moves   (N * K + M * K) * sizeof(X) + M * N * sizeof(Y)
//@ flops   2 * M * N * K
//@ matmul  yes
