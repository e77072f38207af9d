// The arguments of a call, and the tiles that one token is routed on.
#pragma once

#include <stdlib.h>

#include "vector.h"

namespace {

constexpr float MASS_FLOOR = 1e-9f;                    // numerics.MASS_FLOOR
constexpr float GRADIENT_BOUND = 4294967296.0f;        // FLT_MAX^(1/4), numerics.bound_gradient
constexpr float SMALLEST_SUM = 1e-15f, LARGEST_SUM = 1e30f;  // else the softmax needs its maximum

// The arguments of all functions: fast/cpp/routing.py has the same structure. Null: not given.
struct Call {
    const void *votes, *g_capsules, *g_logits;         // [tokens, I, N, D], [.., N, D], [.., I, N]
    const float *activation, *beta_a, *beta_u;         // [tokens, I, N or 1], [N], [N]
    const uint8_t *input_mask, *output_mask;           // [tokens, I], [tokens, N]: 1 = real
    void *capsules, *logits, *g_votes;                 // results
    float *g_activation, *g_beta_a, *g_beta_u;
    int64_t tokens, I, N, D, T;
    float variance_floor;
    int32_t bf16, per_pair, normalise, threads;        // bf16: void is uint16_t, else float
};

// A size that the compiler knows, so that it unrolls loops; 0: one that only the call knows.
template <int KNOWN>
struct Size {
    explicit Size(long) {}
    constexpr operator long() const { return KNOWN; }
};
template <>
struct Size<0> {
    const long size;
    explicit Size(long size) : size(size) {}
    operator long() const { return size; }
};

inline long blocks_of(const Call& call) { return (call.N + W - 1) / W; }

inline vec bound(vec gradient) {
    return at_most(at_least(gradient, -GRADIENT_BOUND), GRADIENT_BOUND);
}

// Scratch memory of a thread; without memory it counts what is taken.
struct Arena {
    vec* memory;
    long used = 0;
    vec* take(long vectors) {
        vec* taken = memory ? memory + used : nullptr;
        used += vectors;
        return taken;
    }
    void* take_bytes(long bytes) { return take((bytes + sizeof(vec) - 1) / sizeof(vec)); }
    float* take_floats(long floats) { return static_cast<float*>(take_bytes(4 * floats)); }
};

// Rows of N numbers in fp32, W of them a vector: rows (i, d) of votes, d of capsules, i of logits.
//
// A tile lies in scratch memory block by block, all rows of a block together: in rows N floats
// apart, a power of two, all rows would compete for the same lines of the cache. Its lanes from N
// on are 0. Votes that are fp32, unmasked, of D = 1 and a multiple of W are used where they are.
struct Tile {
    float* base;
    long row_step, block_step;
    float* at(long block, long row) const { return base + block * block_step + row * row_step; }
    vec get(long block, long row) const { return load(at(block, row)); }
    void set(long block, long row, vec x) const { store(at(block, row), x); }
};

inline Tile scratch_tile(vec* memory, long rows) {
    return {reinterpret_cast<float*>(memory), W, rows * W};
}

inline bool in_place(const Call& call) {
    return !call.bf16 && call.D == 1 && call.N % W == 0 && !call.input_mask && !call.output_mask;
}

inline Tile tile_in_place(const void* tensor, long offset, long N) {
    return {const_cast<float*>(static_cast<const float*>(tensor)) + offset, N, W};
}

// Copy [I, N, D] into rows (i, d), and back.
template <class Number>
void copy_in(const Number* source, Tile tile, long I, long N, long D) {
    for (long i = 0; i < I; ++i, source += N * D) {
        long n = 0;
        if (D == 1)
            for (; n + W <= N; n += W) tile.set(n / W, i, load(source + n));
        for (; n < N; ++n)
            for (long d = 0; d < D; ++d)
                tile.at(n / W, i * D + d)[n % W] = number(source + n * D + d);
    }
}

template <class Number>
void copy_out(Number* target, Tile tile, long I, long N, long D) {
    for (long i = 0; i < I; ++i, target += N * D) {
        long n = 0;
        if (D == 1)
            for (; n + W <= N; n += W) store(target + n, tile.get(n / W, i));
        for (; n < N; ++n)
            for (long d = 0; d < D; ++d)
                store_one(target + n * D + d, tile.at(n / W, i * D + d)[n % W]);
    }
}

// The tile of one token of a tensor [tokens, I, N, D] of the dtype of the votes.
inline Tile read_tile(const Call& call, const void* tensor, long token, long I, long D,
                      vec* memory) {
    long size = I * call.N * D;
    if (in_place(call)) return tile_in_place(tensor, token * size, call.N);
    Tile tile = scratch_tile(memory, I * D);
    if (call.bf16)
        copy_in(static_cast<const uint16_t*>(tensor) + token * size, tile, I, call.N, D);
    else
        copy_in(static_cast<const float*>(tensor) + token * size, tile, I, call.N, D);
    return tile;
}

// The tile in which a result of one token is computed, before write_tile.
inline Tile result_tile(const Call& call, void* tensor, long token, long I, long D, vec* memory) {
    if (in_place(call)) return tile_in_place(tensor, token * I * call.N * D, call.N);
    return scratch_tile(memory, I * D);
}

inline void write_tile(const Call& call, Tile tile, void* tensor, long token, long I, long D) {
    if (in_place(call)) return;
    long size = I * call.N * D;
    if (call.bf16)
        copy_out(static_cast<uint16_t*>(tensor) + token * size, tile, I, call.N, D);
    else
        copy_out(static_cast<float*>(tensor) + token * size, tile, I, call.N, D);
}

// Bring the votes of the next token into the cache while this one is finished.
inline void prefetch_next(const Call& call, Tile votes, long token, long block, long row) {
    if (in_place(call) && token + 1 < call.tokens)
        __builtin_prefetch(votes.at(block, row) + call.I * call.N);
}

// Blocks at a time: the long chain of functions of one block overlaps with that of others.
constexpr long GROUP = 8;

// Sum over d in parts of 8: the rounding of a sum grows with its terms, and an exponential with it.
template <class Term, class Width>
INLINE vec sum_in_parts(Width D, const Term& term) {
    vec total = term(0);
    for (long d = 1; d < D; d += 8) {
        vec part = term(d);
        for (long k = d + 1; k < d + 8 && k < D; ++k) part += term(k);
        total += part;
    }
    return total;
}

// Sums over n of every row i, and the division by them: C[i,n] = e[i,n] / sum_n e[i,n].
//
// 1 / sum is kept in two parts. So C is exactly 1 where one e is the sum, as in a softmax that
// subtracts its maximum: the gradient of its logits then is 0, and not a large number's rounding.
struct RowSums {
    vec* lanes;                       // [I]
    float *inverse, *inverse_rest;    // [I]
    void take(long I, Arena& arena) {
        lanes = arena.take(I);
        inverse = arena.take_floats(I);
        inverse_rest = arena.take_floats(I);
    }
    void clear(long I) {
        for (long i = 0; i < I; ++i) lanes[i] = vec{};
    }
    // The softmax that subtracts its maximum, where `invert` was false: logits [blocks, I] of
    // outputs that are `real` become exponentials, which are added up. It is rare.
    __attribute__((noinline)) void exponentiate(vec* logits, const vec* real, long blocks, long I) {
        for (long i = 0; i < I; ++i) {
            vec largest = vec{} - __builtin_inff();
            for (long block = 0; block < blocks; ++block) {
                vec logit = real[block] > 0.0f ? logits[block * I + i] : largest;
                largest = logit <= largest ? largest : logit;
            }
            float top = largest[0];
            for (int lane = 1; lane < W; ++lane)
                if (!(largest[lane] <= top)) top = largest[lane];
            lanes[i] = vec{};
            for (long block = 0; block < blocks; ++block) {
                vec& e = logits[block * I + i];
                e = real[block] > 0.0f ? exp_of(e - top) : vec{};
                lanes[i] += e;
            }
        }
    }
    // False where a sum without the maximum of the softmax is not exact, or NaN.
    bool invert(long I) {
        bool exact = true;
        for (long i = 0; i < I; ++i) {
            float total = sum(lanes[i]);
            exact &= total >= SMALLEST_SUM && total <= LARGEST_SUM;
            inverse[i] = 1.0f / total;
            inverse_rest[i] = __builtin_fmaf(-total, inverse[i], 1.0f) * inverse[i];
        }
        return exact;
    }
    void divide(vec* e, long I) const {
        for (long i = 0; i < I; ++i) e[i] = e[i] * inverse[i] + e[i] * inverse_rest[i];
    }
    void totals(float* result, long I) const {
        for (long i = 0; i < I; ++i) result[i] = sum(lanes[i]);
    }
};

// Tokens are routed in chunks whose number does not depend on the number of threads: so neither
// does a sum over tokens.
constexpr long MOST_CHUNKS = 256, FEWEST_TOKENS = 16;

inline long chunk_size(const Call& call) {
    long size = (call.tokens + MOST_CHUNKS - 1) / MOST_CHUNKS;
    return size < FEWEST_TOKENS ? FEWEST_TOKENS : size;
}

// At least one, which then is empty.
inline long chunks_of(const Call& call) {
    long size = chunk_size(call);
    return call.tokens ? (call.tokens + size - 1) / size : 1;
}

// Run route(router, token, chunk) for every token, where a Router is the state of one thread.
// Returns 0, or 1 where there is no memory.
template <class Router, class Route>
int for_tokens(const Call& call, bool backward, const Route& route) {
    long size = chunk_size(call), chunks = chunks_of(call);
    Arena count{nullptr};
    Router counter(call, count, backward);
    int failed = 0;
#pragma omp parallel num_threads(call.threads) reduction(| : failed) if (call.threads > 1)
    {
        void* memory = nullptr;
        failed = posix_memalign(&memory, sizeof(vec), count.used * sizeof(vec)) != 0;
        if (!failed) memset(memory, 0, count.used * sizeof(vec));  // lanes from N on
        Arena arena{static_cast<vec*>(memory)};
        Router router(call, arena, backward);
#pragma omp for schedule(dynamic)
        for (long chunk = 0; chunk < chunks; ++chunk) {
            long end = (chunk + 1) * size < call.tokens ? (chunk + 1) * size : call.tokens;
            for (long token = chunk * size; token < end && !failed; ++token)
                route(router, token, chunk);
        }
        free(memory);
    }
    return failed;
}

}  // namespace
