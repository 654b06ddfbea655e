/* format.h - the compiled chat templates of a model: the contents of FTX_SEC_CHAT. Little-endian.
 *
 *   ChatHeader | ChatConst[] | ChatInstr[] | ChatFunction[] | ChatTemplate[] | ChatVar[] | u32 params[] | bytes
 *
 * The section has exactly the size that the header's counts give. A function is a range of instructions that ends in
 * RETURN: the body of a template or of a macro. Jumps stay inside of it. Names are constants of kind STRING, each text
 * once, so that names are compared by index. */
#ifndef FTX_CHAT_FORMAT_H
#define FTX_CHAT_FORMAT_H

#include <stdint.h>

#define CHAT_MAGIC "FTXJ"
enum { CHAT_FORMAT = 1 }; /* grows with every change here and in the .def files of this room */

typedef struct ChatHeader { /* 48 bytes */
    char magic[4];
    uint32_t format;
    uint32_t consts, code, functions, templates, vars, params, bytes; /* how many */
    uint32_t loop;                                                    /* the name "loop"; UINT32_MAX: unused */
    uint32_t reserved[2];
} ChatHeader;

typedef enum ChatConstKind {
    CHAT_NONE,
    CHAT_FALSE,
    CHAT_TRUE,
    CHAT_INT,
    CHAT_FLOAT,
    CHAT_STRING,
    CHAT_CONST_COUNT
} ChatConstKind;

typedef struct ChatConst { /* 16 bytes */
    uint32_t kind;         /* ChatConstKind */
    uint32_t bytes;        /* of a string */
    uint64_t word;         /* an integer, the bits of a double, or where a string begins in `bytes` */
} ChatConst;

typedef enum ChatOp {
#define OP(name, arg, what) CHAT_##name,
#include "ops.def"
#undef OP
    CHAT_OP_COUNT
} ChatOp;

typedef struct ChatInstr { /* 8 bytes */
    uint8_t op;            /* ChatOp */
    uint8_t n;             /* a count of values on the stack */
    uint16_t line;         /* of the template */
    uint32_t arg;
} ChatInstr;

typedef struct ChatFunction { /* 16 bytes */
    uint32_t first, count;    /* instructions */
    uint32_t first_param, n_params;
} ChatFunction;

typedef struct ChatTemplate { /* 8 bytes */
    uint32_t name;            /* a string: "default", "tool_use" */
    uint32_t function;
} ChatTemplate;

typedef struct ChatVar { /* 8 bytes: a variable that every template sees, such as bos_token */
    uint32_t name, value;
} ChatVar;

/* The operators of BINARY and COMPARE. */
typedef enum ChatBinary {
    CHAT_ADD,
    CHAT_SUB,
    CHAT_MUL,
    CHAT_DIV,
    CHAT_FLOORDIV,
    CHAT_MOD,
    CHAT_POW,
    CHAT_BINARY_COUNT
} ChatBinary;
typedef enum ChatCompare {
    CHAT_EQ,
    CHAT_NE,
    CHAT_LT,
    CHAT_LE,
    CHAT_GT,
    CHAT_GE,
    CHAT_IN,
    CHAT_NOT_IN,
    CHAT_COMPARE_COUNT
} ChatCompare;

#endif
