// decode_append.cuh - arguments of those forms of attend_decode that write the step's own keys and values, too.
#pragma once
#include "body/decode_units.cuh"

// What attend_decode's arguments do not have: table of angles, gains of the heads of q and k.
struct AppendFrom {
    const float *table, *qg, *kg;
};
template <class A> struct WithAppend : A {
    AppendFrom append;
    DEVICE WithAppend(const A &a, const AppendFrom &from) : A(a), append(from) {}
};
template <class K> DEVICE const AppendFrom &append_from(const DecodeArgs<K> &a)
{
    return static_cast<const WithAppend<DecodeArgs<K>> &>(a).append;
}
