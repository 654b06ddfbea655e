/* json.h - what JSON cannot say, said in JSON: numbers that are none, texts that are no UTF-8. */
#ifndef FTX_RUNNER_JSON_H
#define FTX_RUNNER_JSON_H

#include <jansson.h>

json_t *runner_json_number(double x);                     /* null: infinite, or no number */
json_t *runner_json_text(const char *text, size_t bytes); /* no UTF-8: with ? for each byte beyond ASCII */
void runner_json_print(json_t *o);                        /* a line on standard output; o is given up */

#endif
