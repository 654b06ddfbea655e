/* load.h - `ftxc load`: requests to a server at times of their own, and how long their answers took. */
#ifndef FTX_SERVER_LOAD_H
#define FTX_SERVER_LOAD_H

int load(int argc, char **argv); /* the arguments after the command's name; returns the exit code */

#endif
