// An Aho-Corasick automaton with a table of all transitions. It first maps bytes to classes.
#include <string.h>

#include <vector>

#include "library.h"

namespace {

struct Automaton {
    uint8_t class_of[256] = {}; // 0 for bytes in no word
    uint32_t classes = 1;
    std::vector<uint32_t> next;  // indexed by state * classes + class: next state * classes
    std::vector<uint32_t> count; // indexed by state: number of words that end there
};

uint32_t add_state(Automaton *a) {
    a->next.resize(a->next.size() + a->classes, 0);
    a->count.push_back(0);
    return static_cast<uint32_t>(a->count.size() - 1);
}

// Sets the transitions that no word has, in order of depth. They are the transitions of the state of the longest
// suffix.
void complete(Automaton *a) {
    std::vector<uint32_t> suffix(a->count.size(), 0), order = {0};
    for (size_t n = 0; n < order.size(); n++) {
        uint32_t state = order[n];
        if (state != 0) a->count[state] += a->count[suffix[state]];
        for (uint32_t c = 0; c < a->classes; c++) {
            uint32_t &to = a->next[state * a->classes + c];
            uint32_t other = state == 0 ? 0 : a->next[suffix[state] * a->classes + c];
            if (to == 0) {
                to = other;
            } else {
                suffix[to] = other;
                order.push_back(to);
            }
        }
    }
    for (uint32_t &to : a->next) to *= a->classes;
}

} // namespace

const void *make_automaton(const uint8_t *words, const uint32_t *sizes, uint32_t count) {
    Automaton *a = new Automaton;
    const uint8_t *word = words;
    for (uint32_t w = 0; w < count; word += sizes[w++]) {
        for (uint32_t i = 0; i < sizes[w]; i++) {
            if (a->class_of[word[i]] == 0) a->class_of[word[i]] = static_cast<uint8_t>(a->classes++);
        }
    }
    add_state(a);
    word = words;
    for (uint32_t w = 0; w < count; word += sizes[w++]) {
        uint32_t state = 0;
        for (uint32_t i = 0; i < sizes[w]; i++) {
            size_t at = static_cast<size_t>(state) * a->classes + a->class_of[word[i]];
            if (a->next[at] == 0) {
                uint32_t added = add_state(a);
                a->next[at] = added;
            }
            state = a->next[at];
        }
        a->count[state]++;
    }
    complete(a);
    std::vector<uint32_t> spread(a->next.size(), 0); // indexed by state * classes, like the states in `next`
    for (size_t s = 0; s < a->count.size(); s++) spread[s * a->classes] = a->count[s];
    a->count = spread;
    return a;
}

void fast_keywords(const void *automaton, const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end) {
    const Automaton &a = *static_cast<const Automaton *>(automaton);
    const uint32_t *next = a.next.data(), *count = a.count.data();
    // Processes four records at once, because each step waits for the previous one.
    for (uint32_t i = first; i < end; i += 4) {
        uint32_t rows = end - i < 4 ? end - i : 4, state[4] = {}, size[4] = {}, common = ~0u;
        uint64_t found[4] = {};
        for (uint32_t r = 0; r < rows; r++) {
            size[r] = offsets[i + r + 1] - offsets[i + r];
            common = size[r] < common ? size[r] : common;
        }
        const uint8_t *from = data + offsets[i];
        const uint32_t *start = offsets + i;
        uint32_t at = 0;
        if (rows == 4) {
            const uint8_t *b = data + start[1], *c = data + start[2], *d = data + start[3];
            for (; at < common; at++) {
                state[0] = next[state[0] + a.class_of[from[at]]], found[0] += count[state[0]];
                state[1] = next[state[1] + a.class_of[b[at]]], found[1] += count[state[1]];
                state[2] = next[state[2] + a.class_of[c[at]]], found[2] += count[state[2]];
                state[3] = next[state[3] + a.class_of[d[at]]], found[3] += count[state[3]];
            }
        }
        for (uint32_t r = 0; r < rows; r++) {
            for (uint32_t k = at; k < size[r]; k++) {
                state[r] = next[state[r] + a.class_of[data[start[r] + k]]];
                found[r] += count[state[r]];
            }
            out[i + r] = found[r];
        }
    }
}
