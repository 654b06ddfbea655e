/* layout.h - a table of where the fields of structs lie and which numbers names have, by the ftx.h included before it. */
#include <stddef.h>

typedef struct Layout {
    const char *name; /* NULL: the end */
    size_t value;     /* of a field its offset and size, else the number */
} Layout;

extern const Layout old_layout[]; /* of old/ftx.h */

#define FIELD(type, name) {#type "." #name, offsetof(type, name) << 16 | sizeof(((type *)0)->name)},
#define NUMBER(name) {#name, (size_t)(name)},
