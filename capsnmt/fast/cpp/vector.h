// Vectors of floats in the extension of GCC and Clang, as wide as the registers of this machine.
//
// Everything is in an unnamed namespace: two builds with other instructions may be in one process,
// and the linker keeps one of two functions with the same name. No standard library, same reason.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));
typedef uint32_t uvec __attribute__((vector_size(4 * W)));
typedef uint16_t hvec __attribute__((vector_size(2 * W)));
typedef float unaligned_vec __attribute__((vector_size(4 * W), aligned(4)));

INLINE vec load(const float* source) { return *reinterpret_cast<const unaligned_vec*>(source); }
INLINE void store(float* target, vec x) { *reinterpret_cast<unaligned_vec*>(target) = x; }

// The larger and the smaller of a bound and x; NaN passes: both return their second operand.
// Of a comparison and a selection the compiler makes two instructions, of which there are many.
#if defined(__AVX512F__)
INLINE vec at_least(vec x, float low) { return _mm512_max_ps(vec{} + low, x); }
INLINE vec at_most(vec x, float high) { return _mm512_min_ps(vec{} + high, x); }
#elif defined(__AVX__)
INLINE vec at_least(vec x, float low) { return _mm256_max_ps(vec{} + low, x); }
INLINE vec at_most(vec x, float high) { return _mm256_min_ps(vec{} + high, x); }
#else
INLINE vec at_least(vec x, float low) { return low > x ? vec{} + low : x; }
INLINE vec at_most(vec x, float high) { return high < x ? vec{} + high : x; }
#endif

// The sum of the lanes, always in the same order.
INLINE float sum(vec x) {
    float total = 0;
    for (int lane = 0; lane < W; ++lane) total += x[lane];
    return total;
}

INLINE vec square_root(vec x) {
    vec root;
    for (int lane = 0; lane < W; ++lane) root[lane] = __builtin_sqrtf(x[lane]);
    return root;
}

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float EXP2_LOW = -126.0f, EXP2_HIGH = 126.0f;  // the result is a normal number

// 2^x for x in EXP2_LOW..EXP2_HIGH or NaN, to one unit in the last place (7.5e-8).
//
// Adding 1.5 * 2^23 leaves the nearest integer of x in the low bits of the sum. 2^(x - integer) is
// a minimax polynomial, and the integer is added to its exponent. -ffast-math would cancel the
// magic number, and with it the rounding.
INLINE vec exp2_of(vec x) {
    constexpr float MAGIC = 12582912.0f;
    vec shifted = x + MAGIC;
    vec f = x - (shifted - MAGIC);
    vec p = f * 0.0013276476f + 0.009675541f;
    p = p * f + 0.05550713f;
    p = p * f + 0.2402212f;
    p = p * f + 0.69314694f;
    p = p * f + 1.00000012f;
    return (vec)((ivec)p + ((ivec)shifted << 23));
}

INLINE vec exp_of(vec x) {
    return exp2_of(at_most(at_least(x * LOG2_E, EXP2_LOW), EXP2_HIGH));
}

// log x of a normal number, infinity or NaN: x = 2^k (1 + f) with 1 + f in sqrt(1/2)..sqrt(2), and
// the polynomial of the Cephes library.
INLINE vec log_of(vec x) {
    ivec k = ((ivec)x - 0x3f3504f3) >> 23;
    vec f = (vec)((ivec)x - (k << 23)) - 1.0f;
    vec exponent = __builtin_convertvector(k, vec);
    vec f2 = f * f, f4 = f2 * f2;
    vec p01 = f * -0.24999993993f + 0.33333331174f;
    vec p23 = f * -0.16668057665f + 0.20000714765f;
    vec p45 = f * -0.12420140846f + 0.14249322787f;
    vec p67 = f * -0.11514610310f + 0.11676998740f;
    vec p = (f2 * p23 + p01) + f4 * ((f2 * p67 + p45) + f4 * 0.070376836292f);
    vec log = exponent * -2.12194440e-4f + f2 * (f * p - 0.5f) + f + exponent * 0.693359375f;
    return x < __builtin_inff() ? log : x;
}

// bfloat16, the upper half of a float: widened by a shift, rounded to the nearest even number.
INLINE vec load(const uint16_t* source) {
    hvec half;
    memcpy(&half, source, sizeof half);
    return (vec)(__builtin_convertvector(half, uvec) << 16);
}

INLINE void store(uint16_t* target, vec x) {
    uvec bits = (uvec)x;
    uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    hvec half = __builtin_convertvector(x == x ? rounded : uvec{} + 0x7fc0, hvec);
    memcpy(target, &half, sizeof half);
}

// One number alone.
INLINE float number(const float* source) { return *source; }
INLINE float number(const uint16_t* source) {
    uint32_t bits = uint32_t(*source) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
INLINE void store_one(float* target, float x) { *target = x; }
INLINE void store_one(uint16_t* target, float x) {
    uint16_t all[W];
    store(all, vec{} + x);
    *target = all[0];
}

}  // namespace
