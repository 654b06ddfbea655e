// matmul.cu - contract of a cuBLASLt node:  y[M,N] = act(x[M,K] w[N,K]^T + b) or ... + r.
//
// It has no text: the runtime calls the library with the constants of FtxMatmulConst, in that order.
//
// Chosen for steps of any T (prompts; only live rows are computed), and for decode programs of more than 64 rows where
// linear_tile does not fit. Up to 64 rows the kernels of this folder are: they overlap by programmatic dependent
// launch, a library call in a CUDA graph does not.
//
// cuBLASLt adds a residual (beta = 1) before its activation, so a match has one of them. A bias has the type of y. Its
// GELU is the tanh form, which is not exact enough in fp32.
//@ kernel  matmul
//@ rank    350
//@ device  matmul
//@ args    x[M,K] w[N,K] b[N]:type(y) r[M,N]:type(y) -> y[M,N]
//@ match   y = linear(x, w, b?)            | ACT=0
//@ match   y = add(linear(x, w, b?), r)    | ACT=0
//@ match   y = act(linear(x, w, b?))       | ACT=act.kind
//@ consts  ROWS_S: M_IS_S  N: N  K: K  X: type(x)  W: type(w)  Y: type(y)  ACT: ACT
//@ fits    X == W
//@ fits    ACT == none || ACT == relu || (ACT == gelu_tanh && sizeof(X) == 2)
//@ prefer  other if BUCKET > 0 ? T_MAX <= 64 || (sizeof(X) == 2 && M_MAX <= 64) : sizeof(X) == 2 && M_IS_S && M_MAX <= 64
//@ moves   (N * K + M * K) * sizeof(X) + M * N * sizeof(Y)
//@ flops   2 * M * N * K
//@ matmul  yes
