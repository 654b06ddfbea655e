/* chat.h - `ftxc chat`: a conversation on the terminal. */
#ifndef FTX_RUNNER_CHAT_H
#define FTX_RUNNER_CHAT_H

/* Takes options and an artifact, gives an exit code. */
int chat(int argc, char **argv);

#endif
