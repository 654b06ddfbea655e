/* message.h - the assistant's message: tools of the request, calls and reasoning in what is written. */
#ifndef FTX_SERVER_MESSAGE_H
#define FTX_SERVER_MESSAGE_H

#include "completion.h"

/* Finds the model's style of calls and its special tokens that are marks of one. */
void message_marks(Served *m);

/* tools, tool_choice and parallel_tool_calls of the request. */
bool message_read_tools(Completion *c, Fault *f);
/* After the prompt is known: puts behind it what tool_choice forces, and looks whether it begins reasoning. */
bool message_begin(Completion *c, Part *p, bool reasons, Fault *f);
void message_open(Completion *c); /* the choices' parsers */
void message_free(Choice *choice);

/* True if texts of the completion go through a parser. */
bool message_parsed(const Completion *c);
/* Takes the text of an event into the message, or prints it as chunks. */
void message_take(Completion *c, int index, int32_t token, const char *text, size_t bytes);
void message_stream(Text *t, Completion *c, int index, int32_t token, const char *text, size_t bytes, size_t *first);

#endif
