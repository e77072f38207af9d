// Dynamic, simple and inverted routing of one token. The equations are those of
// capsnmt.routing.agreement and capsnmt.routing.inverted.
//
// The logits are never stored: b[i,n] = P[n] . V[i,n], where P[n] is the sum of the capsules out[n]
// of all iterations so far; in inverted routing it is out[n] / sqrt(D) of the last one. As in em.h
// an iteration is one pass over the votes, and the softmax is divided by the sums of its rows in
// the next.
#pragma once

#include "tile.h"

namespace {

// One iteration: its coefficients and its capsules.
struct Agreed {
    vec* C;             // [blocks][I], or [I] where all blocks share it (step = 0)
    long step;
    vec *S, *P;         // [blocks][D]: the sum or mean of the votes; P after this iteration
    vec* inverse_mass;  // [blocks], simple routing: 1 / sum_i C[i,n]
    vec* kept;          // [blocks], simple routing: 0 where the mass is at its floor, else 1
};

// The gradient of C is linear in V: g_C[i,n] = c0[n] + sum_d V[i,n,d] c1[n,d].
struct Linear {
    vec *c0, *c1;  // [blocks], [blocks][D]
};

// How a capsule is made of the sum or mean of its votes: out = (S - shift) factor.
struct Nonlinearity {
    vec shift, factor;
};

constexpr float LAYER_NORM_EPSILON = 1e-5f;  // inverted.EPSILON

// WIDTH: D, 0 for any. INVERTED: inverted routing, whose capsules are normalised, not squashed.
template <int WIDTH, bool INVERTED>
struct Agreement {
    const Call& call;
    const long I;
    const Size<WIDTH> D;
    const long T, blocks;
    vec *votes_memory, *capsules_memory, *g_votes_memory, *logits_memory;
    vec *real_outputs, *real_inputs;  // [blocks], [I]: 1 or 0
    float outputs;                    // how many are real
    Tile V;                           // rows (i, d), 0 where masked
    Agreed* iterates;
    Linear linears[2];                // of iteration t at t % 2
    vec *gP, *gb;                     // [blocks][D]; of one block, [I]
    RowSums rows;
    float* dots;                      // [I]: sum_n C g_C

    Agreement(const Call& call, Arena& arena, bool backward)
        : call(call), I(call.I), D(call.D), T(call.T), blocks(blocks_of(call)) {
        long copied = in_place(call) ? 0 : blocks * D;
        votes_memory = arena.take(copied * I);
        capsules_memory = arena.take(copied);
        g_votes_memory = arena.take(backward ? copied * I : 0);
        logits_memory = arena.take(in_place(call) ? 0 : blocks * I);
        real_outputs = arena.take(blocks);
        real_inputs = arena.take(I);
        gP = arena.take(backward ? blocks * D : 0);
        gb = arena.take(I);
        rows.take(I, arena);
        dots = arena.take_floats(I);
        long kept = backward ? T : 2;  // a forward pass alternates between two
        iterates = static_cast<Agreed*>(arena.take_bytes(sizeof(Agreed) * kept));
        for (long t = 0; t < kept; ++t) {
            Agreed now;
            now.step = t ? I : 0;
            now.C = arena.take(t ? blocks * I : I);
            now.S = arena.take(blocks * D);
            now.P = arena.take(blocks * D);
            now.inverse_mass = arena.take(blocks);
            now.kept = arena.take(blocks);
            if (arena.memory) iterates[t] = now;
        }
        for (Linear& linear : linears) {
            linear.c0 = arena.take(backward ? blocks : 0);
            linear.c1 = arena.take(backward ? blocks * D : 0);
        }
    }

    void read(long token) {
        const uint8_t* inputs = call.input_mask ? call.input_mask + token * I : nullptr;
        const uint8_t* masked = call.output_mask ? call.output_mask + token * call.N : nullptr;
        outputs = 0;
        for (long n = 0; n < call.N; ++n) {
            real_outputs[n / W][n % W] = !masked || masked[n];
            outputs += !masked || masked[n];
        }
        for (long i = 0; i < I; ++i) {
            real_inputs[i] = vec{} + float(!inputs || inputs[i]);
            iterates[0].C[i] = real_inputs[i] / (outputs > 1 ? outputs : 1.0f);
        }
        V = read_tile(call, call.votes, token, I, D, votes_memory);
        mask(V, D);
    }

    // Set to 0 what is masked: a masked vote need not be finite.
    void mask(Tile tile, long width) const {
        if (!call.input_mask && !call.output_mask) return;
        for (long block = 0; block < blocks; ++block)
            for (long i = 0; i < I; ++i) {
                vec real = real_outputs[block] * real_inputs[i];
                for (long d = 0; d < width; ++d) {
                    vec x = tile.get(block, i * width + d);
                    tile.set(block, i * width + d, real > 0.0f ? x : vec{});
                }
            }
    }

    // The iteration at index t of a forward pass, in which all but the first share their memory.
    Agreed& at(long t, bool keep) { return iterates[keep || t == 0 ? t : 1]; }

    vec C(const Agreed& now, long block, long i) const { return now.C[block * now.step + i]; }

    vec squared_length(const vec* S) const {
        return sum_in_parts(D, [=](long d) { return S[d] * S[d]; });
    }

    // squash(S) = S sqrt(|S|^2 + tiny) / (1 + |S|^2)
    static vec length(vec squared) { return square_root(squared + 0x1p-126f); }

    // Of inverted routing: LayerNorm over D, which is left out at D = 1.
    Nonlinearity nonlinearity(const vec* S) const {
        const vec one = vec{} + 1.0f;
        if (!INVERTED) {
            vec squared = squared_length(S);
            return {vec{}, length(squared) / (1.0f + squared)};
        }
        if (D == 1) return {vec{}, one};
        vec mean = sum_in_parts(D, [=](long d) { return S[d]; }) / float(D);
        vec variance = sum_in_parts(D, [=](long d) { return (S[d] - mean) * (S[d] - mean); });
        return {mean, one / square_root(variance / float(D) + LAYER_NORM_EPSILON)};
    }

    // P = out / sqrt(D) in inverted routing
    float scale() const { return INVERTED ? 1.0f / __builtin_sqrtf(float(D)) : 1.0f; }

    // The capsules of a block; but for inverted routing, added to those before them.
    void capsules(const Agreed& now, const Agreed* before, long block) {
        if (now.step) rows.divide(now.C + block * I, I);
        vec *S = now.S + block * D, inverse_mass = vec{} + 1.0f;
        if (call.normalise) {
            vec mass{};
            for (long i = 0; i < I; ++i) mass += C(now, block, i);
            now.kept[block] = mass < MASS_FLOOR ? vec{} : vec{} + 1.0f;
            inverse_mass = 1.0f / at_least(mass, MASS_FLOOR);
            now.inverse_mass[block] = inverse_mass;
        }
        for (long d = 0; d < D; ++d) {
            vec total{};
            for (long i = 0; i < I; ++i) total += C(now, block, i) * V.get(block, i * D + d);
            S[d] = total * inverse_mass;
        }
        Nonlinearity out = nonlinearity(S);
        for (long d = 0; d < D; ++d) {
            vec earlier = before && !INVERTED ? before->P[block * D + d] : vec{};
            now.P[block * D + d] = earlier + (S[d] - out.shift) * (out.factor * scale());
        }
    }

    vec logit(const Agreed& now, long block, long i) const {
        const vec* P = now.P + block * D;
        return sum_in_parts(D, [=](long d) { return P[d] * V.get(block, i * D + d); });
    }

    // e[i,n] = exp b[i,n], without the maximum of a softmax.
    void exponentials(const Agreed& now, const Agreed& next, long block) {
        for (long i = 0; i < I; ++i) {
            vec e = real_outputs[block] * exp_of(logit(now, block, i));
            next.C[block * I + i] = e;
            rows.lanes[i] += e;
        }
    }

    // Of a row without input or outputs C is 0, and its sum says nothing.
    bool invert_rows() {
        for (long i = 0; i < I; ++i)
            if (outputs == 0 || real_inputs[i][0] == 0) rows.lanes[i] = vec{} + 1.0f;
        bool exact = rows.invert(I);
        for (long i = 0; i < I; ++i)
            if (outputs == 0 || real_inputs[i][0] == 0) rows.inverse[i] = rows.inverse_rest[i] = 0;
        return exact;
    }

    // Iterations 0 .. T-2, each as one pass over the votes.
    void iterate(bool keep) {
        for (long t = 0; t + 1 < T; ++t) {
            const Agreed &now = at(t, keep), &next = at(t + 1, keep);
            const Agreed* before = t ? &at(t - 1, keep) : nullptr;
            rows.clear(I);
            for (long first = 0; first < blocks; first += GROUP) {
                for (long block = first; block < end_of_group(first); ++block)
                    capsules(now, before, block);
                for (long block = first; block < end_of_group(first); ++block)
                    exponentials(now, next, block);
            }
            if (invert_rows()) continue;
            for (long block = 0; block < blocks; ++block)
                for (long i = 0; i < I; ++i) next.C[block * I + i] = logit(now, block, i);
            rows.exponentiate(next.C, real_outputs, blocks, I);
            invert_rows();
        }
    }

    long end_of_group(long first) const { return first + GROUP < blocks ? first + GROUP : blocks; }

    const Agreed* before_last(bool keep) { return T > 1 ? &at(T - 2, keep) : nullptr; }

    void forward(long token) {
        read(token);
        iterate(false);
        const Agreed& now = at(T - 1, false);
        Tile out = result_tile(call, call.capsules, token, 1, D, capsules_memory);
        Tile logits{};
        if (call.logits) logits = result_tile(call, call.logits, token, I, 1, logits_memory);
        for (long block = 0; block < blocks; ++block) {
            capsules(now, before_last(false), block);
            const vec* S = now.S + block * D;
            Nonlinearity of = nonlinearity(S);
            for (long d = 0; d < D; ++d) out.set(block, d, (S[d] - of.shift) * of.factor);
            for (long i = 0; i < I; ++i) {
                if (call.logits) logits.set(block, i, logit(now, block, i));
                prefetch_next(call, V, token, block, i);
            }
        }
        write_tile(call, out, call.capsules, token, 1, D);
        if (call.logits) write_tile(call, logits, call.logits, token, I, 1);
    }

    // From the gradient of the capsules of a block to that of C, through LayerNorm.
    void normalised_gradient(long t, long block, const vec* g_out) {
        const vec* S = iterates[t].S + block * D;
        const Linear& to = linears[t % 2];
        Nonlinearity out = nonlinearity(S);
        vec mean{}, along{};  // of g_out; of its component along the capsule
        for (long d = 0; D > 1 && d < D; ++d) {
            mean += g_out[d] / float(D);
            along += g_out[d] * (S[d] - out.shift) * (out.factor / float(D));
        }
        for (long d = 0; d < D; ++d) {
            vec y = (S[d] - out.shift) * out.factor;
            to.c1[block * D + d] = (g_out[d] - mean - y * along) * out.factor;
        }
        to.c0[block] = vec{};
    }

    // From the gradient of the capsules of a block to that of C, through squash and mean.
    void capsules_gradient(long t, long block, const vec* g_out) {
        if (INVERTED) return normalised_gradient(t, block, g_out);
        const Agreed& now = iterates[t];
        const Linear& to = linears[t % 2];
        const vec* S = now.S + block * D;
        vec squared = squared_length(S), root = length(squared), inverse = 1.0f / (1.0f + squared);
        vec along{};
        for (long d = 0; d < D; ++d) along += g_out[d] * S[d];
        vec slope = along * (inverse / root - 2.0f * root * inverse * inverse);
        vec inverse_mass = call.normalise ? now.inverse_mass[block] : vec{} + 1.0f, g_mass{};
        for (long d = 0; d < D; ++d) {
            vec g_sum = (g_out[d] * (root * inverse) + S[d] * slope) * inverse_mass;
            g_mass -= g_sum * S[d];
            to.c1[block * D + d] = g_sum;
        }
        to.c0[block] = call.normalise ? g_mass * now.kept[block] : vec{};
    }

    vec g_C(long t, long block, long i) const {
        const Linear& from = linears[t % 2];
        const vec* c1 = from.c1 + block * D;
        return from.c0[block] +
               sum_in_parts(D, [=](long d) { return c1[d] * V.get(block, i * D + d); });
    }

    // The gradient of V by the sum of iteration t.
    vec g_vote(long t, long block, long i, long d) const {
        return C(iterates[t], block, i) * linears[t % 2].c1[block * D + d];
    }

    void finish_block(long t, long token, long block, Tile g_votes, bool fresh) {
        if (t > 0)
            for (long i = 0; i < I; ++i)
                rows.lanes[i] += C(iterates[t], block, i) * bound(g_C(t, block, i));
        for (long i = 0; t == 0 && i < I; ++i) {
            prefetch_next(call, V, token, block, i);
            for (long d = 0; d < D; ++d) {
                vec g = g_vote(0, block, i, d);
                if (!fresh) g += g_votes.get(block, i * D + d);
                g_votes.set(block, i * D + d, g);
            }
        }
    }

    // The last iteration and its gradient, as one pass.
    void last_iteration(long token, Tile g_votes) {
        const Agreed& now = iterates[T - 1];
        Tile g_capsules{}, g_logits{};
        if (call.g_capsules)
            g_capsules = read_tile(call, call.g_capsules, token, 1, D, capsules_memory);
        if (call.g_logits) g_logits = read_tile(call, call.g_logits, token, I, 1, logits_memory);
        rows.clear(I);
        for (long block = 0; block < blocks; ++block) {
            capsules(now, before_last(true), block);
            vec *from_logits = gP + block * D, *g_out = now.P + block * D;
            for (long d = 0; d < D; ++d) {
                vec total{};
                for (long i = 0; call.g_logits && i < I; ++i) {
                    vec g = g_logits.get(block, i);
                    total += g * V.get(block, i * D + d);
                    g_votes.set(block, i * D + d, g * now.P[block * D + d]);
                }
                from_logits[d] = total;
                // P of the last iteration is not needed again.
                g_out[d] = total + (call.g_capsules ? g_capsules.get(block, d) : vec{});
            }
            capsules_gradient(T - 1, block, g_out);
            finish_block(T - 1, token, block, g_votes, !call.g_logits);
        }
        rows.totals(dots, I);
    }

    // The gradient of iteration t < T-1, which made C of t+1, as one pass.
    void earlier_iteration(long t, long token, Tile g_votes) {
        const Agreed &now = iterates[t], &next = iterates[t + 1];
        const bool fresh = t + 2 == T && !call.g_logits;
        rows.clear(I);
        for (long block = 0; block < blocks; ++block) {
            for (long i = 0; i < I; ++i)  // through the softmax
                gb[i] = C(next, block, i) * (bound(g_C(t + 1, block, i)) - dots[i]);
            for (long d = 0; d < D; ++d) {
                vec total = INVERTED ? vec{} : gP[block * D + d], P = now.P[block * D + d];
                for (long i = 0; i < I; ++i) {
                    total += gb[i] * V.get(block, i * D + d);
                    vec g = g_vote(t + 1, block, i, d) + gb[i] * P;
                    if (!fresh) g += g_votes.get(block, i * D + d);
                    g_votes.set(block, i * D + d, g);
                }
                gP[block * D + d] = total * scale();
            }
            capsules_gradient(t, block, gP + block * D);
            finish_block(t, token, block, g_votes, false);
        }
        rows.totals(dots, I);
    }

    void backward(long token) {
        read(token);
        iterate(true);
        Tile g_votes = result_tile(call, call.g_votes, token, I, D, g_votes_memory);
        last_iteration(token, g_votes);
        for (long t = T - 2; t >= 0; --t) earlier_iteration(t, token, g_votes);
        mask(g_votes, D);
        write_tile(call, g_votes, call.g_votes, token, I, D);
    }
};

}  // namespace
