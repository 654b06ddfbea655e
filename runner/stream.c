/* stream.c - `--stream`: a JSON object for each piece of text of a batch, as it comes.
 *
 *   {"line": 2, "text": "Once"}
 *   {"line": 1, "text": " upon"}
 *   {"line": 2, "text": "", "finish": "length", "prompt_tokens": 3, "new_tokens": 9}
 *
 * Pieces of all lines are mixed. With --requests they are those of OpenAI's streams, behind the line's custom_id. */
#include "stream.h"

#include <stdio.h>
#include <string.h>

#include "command.h"
#include "json.h"

void stream_print(const Answers *all, const Job *j, int sample, const char *text, size_t bytes, FtxFinish finish)
{
    const Answer *a = &j->answers[sample];
    const LineAnswer piece = {.text = text,
                              .text_bytes = bytes,
                              .prompt_tokens = (size_t)j->prompt_tokens,
                              .new_tokens = a->n,
                              .finish = finish};
    json_t *o;

    if (j->line) {
        requests_print_piece(j->line, j->number, &all->info, &piece);
        return;
    }
    o = json_pack("{sI}", "line", (json_int_t)j->number);
    if (all->samples > 1)
        json_object_set_new(o, "sample", json_integer(sample));
    json_object_set_new(o, "text", runner_json_text(text ? text : "", bytes));
    if (finish != FTX_RUNNING) {
        json_object_set_new(o, "finish", json_string(answers_finish_name(finish)));
        json_object_set_new(o, "prompt_tokens", json_integer(j->prompt_tokens));
        json_object_set_new(o, "new_tokens", json_integer((json_int_t)a->n));
    }
    runner_json_print(o);
}

void stream_refuse(const Answers *all, const Job *j)
{
    if (j->line) {
        requests_print(j->line, j->number, &all->info, &(LineAnswer){.refusal = j->refusal});
        return;
    }
    command_print("%s: line %zu: %s\n", command_program, j->number, j->refusal);
    runner_json_print(
        json_pack("{sI so}", "line", (json_int_t)j->number, "error", runner_json_text(j->refusal, strlen(j->refusal))));
}
