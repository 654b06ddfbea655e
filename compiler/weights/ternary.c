/* ternary.c - matrices of BitNet: values -1, 0 and 1 with one scale, four of them in a byte.
 *
 *   weight [N/4, K] U8    bits 2i and 2i + 1 of byte [r,k] are 1 + the value at n = r + i N/4
 *   weight_scale [1]      w[n,k] = scale * value with linear_class "autobitlinear", value / scale with "bitlinear"
 *
 * They are kept as codes of 4 bits: the value + 8. The 8 bits of the products' other side are not those of the class: see
 * precision.activations. */
#include "stored.h"

static void ternary_row(const StoredCodes *m, int64_t n, uint8_t *codes)
{
    const int64_t rows = m->rows / 4;
    const uint8_t *from = (const uint8_t *)m->codes->at + n % rows * m->columns;
    const int shift = (int)(2 * (n / rows));

    for (int64_t k = 0; k < m->columns; k++)
        codes[k] = (uint8_t)((from[k] >> shift & 3) + 7);
}

bool bitnet_read(Stored *s)
{
    const char *class, *mode;
    bool normed;

    if (!stored_word(s, s->config, "linear_class", "bitlinear", &class) ||
        !stored_word(s, s->config, "quantization_mode", "offline", &mode) ||
        !stored_flag(s, s->config, "use_rms_norm", false, &normed))
        return false;
    if (strcmp(class, "bitlinear") != 0 && strcmp(class, "autobitlinear") != 0)
        return stored_refuse(s, "\"linear_class\" must be bitlinear or autobitlinear, it is \"%.100s\"", class);
    if (strcmp(class, "autobitlinear") == 0 && strcmp(mode, "offline") != 0)
        return stored_refuse(s,
                             "quantization_mode \"%.100s\" rounds the weights at each step, which is not done: "
                             "compile the checkpoint with packed weights",
                             mode);
    if (normed)
        return stored_refuse(s, "use_rms_norm is not computed");
    for (size_t i = 0; i < s->c->tensors.n; i++) {
        const Tensor *t = &s->c->tensors.at[i];
        const char *module = stored_module(s, t, ".weight");
        StoredCodes m = {.codes = t, .bits = 4, .row = ternary_row};

        if (!module || strcmp(t->stored, "U8") != 0)
            continue;
        if (t->rank != 2 || !t->elements)
            return stored_wrong(s, t, "is not a matrix");
        m.scales = stored_need(s, t, module, ".weight_scale", "F16 BF16 F32");
        if (!m.scales)
            return false;
        if (m.scales->elements != 1)
            return stored_wrong(s, m.scales, "does not have one element");
        m.rows = 4 * t->dim[0];
        m.columns = m.group = t->dim[1];
        m.inverse = strcmp(class, "bitlinear") == 0;
        s->taken[i] = true;
        if (!stored_codes(s, module, &m))
            return false;
    }
    return true;
}
