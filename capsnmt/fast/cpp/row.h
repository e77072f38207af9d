// Sums and softmax of a row of numbers, fp32 or bf16, that lie side by side.
#pragma once

#include "vector.h"

namespace {

// Sums side by side: each alone would wait for its last addition.
const long SIDE = 4;

#if defined(__AVX512F__)
INLINE float fast_sum(vec x) { return _mm512_reduce_add_ps(x); }
INLINE vec larger(vec x, vec y) { return _mm512_max_ps(x, y); }
#elif defined(__AVX__)
INLINE float fast_sum(vec x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
INLINE vec larger(vec x, vec y) { return _mm256_max_ps(x, y); }
#else
INLINE float fast_sum(vec x) { return sum(x); }
INLINE vec larger(vec x, vec y) { return x > y ? x : y; }
#endif

template <typename T>
float largest(const T* x, long size) {
    vec most = vec{} - __builtin_inff();
    long n = 0;
    for (; n + W <= size; n += W) most = larger(load(x + n), most);
    float result = most[0];
    for (int lane = 1; lane < W; ++lane) result = most[lane] > result ? most[lane] : result;
    for (; n < size; ++n) result = number(x + n) > result ? number(x + n) : result;
    return result;
}

// Sum of exp(x - shift), and the terms themselves if there is a place for them.
template <typename T>
float exponentials(const T* x, long size, float shift, float* terms) {
    vec total = {};
    long n = 0;
    for (; n + W <= size; n += W) {
        vec term = exp_of(load(x + n) - shift);
        if (terms) store(terms + n, term);
        total += term;
    }
    float rest = 0;
    for (; n < size; ++n) {
        float term = exp_of(vec{} + (number(x + n) - shift))[0];
        if (terms) terms[n] = term;
        rest += term;
    }
    return fast_sum(total) + rest;
}

}  // namespace
