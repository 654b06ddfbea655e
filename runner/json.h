/* json.h - JSON values for numbers and texts that JSON has no form for: infinities, NaN, invalid UTF-8. */
#ifndef FTX_RUNNER_JSON_H
#define FTX_RUNNER_JSON_H

#include <jansson.h>

json_t *runner_json_number(double x);                     /* null for infinities and NaN */
json_t *runner_json_text(const char *text, size_t bytes); /* invalid UTF-8: ? for each byte beyond ASCII */
void runner_json_print(json_t *o);                        /* one line on standard output; releases o */

#endif
