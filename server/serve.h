/* serve.h - the door of the room: the command `ftxc serve`. */
#ifndef FTX_SERVER_SERVE_H
#define FTX_SERVER_SERVE_H

int serve(int argc, char **argv); /* the arguments after the command's name; returns the exit code */

#endif
