/* old_layout.c - the layout of the structs in the ftx.h of older programs. */
#include "old/ftx.h"

#include "layout.h"

const Layout old_layout[] = {
#include "layout.def"
    {NULL, 0},
};
