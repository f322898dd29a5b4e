// The phrases of boilerplate, and URLs.
//
// A hash of the last four bytes finds the places where a phrase or a URL may begin. Only these places are compared.
#pragma once

#include "math/both.cuh"
#include "quality_classes.cuh"
#include "quality_tally.cuh"
#include "quality_text.cuh"
#include "quality_warp.cuh"

namespace millrace {

constexpr uint32_t four_bytes(const char *text) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; i++) word |= static_cast<uint32_t>(static_cast<uint8_t>(text[i])) << 8 * i;
    return word;
}

// The first four bytes of all phrases and URLs, with bit 5 of each byte set, so that letters have lower case. In
// "cookie" the k may also be U+212A, the kelvin sign, whose bytes are e2 84 aa.
constexpr const char *kBeginnings[] = {"term", "priv", "cook", "coo\xe2", "uses", "use ", "nece", "any ", "if y", "lore", "http"};
constexpr uint32_t kLowerCase = 0x20202020, kHttp = four_bytes("http"), kCook = four_bytes("cook"), kKelvinCook = four_bytes("coo\xe2");

// Maps the beginnings to different numbers below 32. The factor was found by trial.
MILLRACE_BOTH constexpr uint32_t beginning_slot(uint32_t word) { return word * 0xa6cecc1bu >> 27; }

// The phrases, back to back. The last phrase is the lorem phrase.
struct QualityPhrases {
    static constexpr uint32_t kCount = kPolicies + 1, kMostText = 1024;
    uint16_t starts[kCount + 1];
    char text[kMostText];
};

constexpr QualityPhrases make_phrases() {
    QualityPhrases phrases{};
    uint32_t at = 0;
    for (uint32_t i = 0; i < QualityPhrases::kCount; i++) {
        const char *phrase = i < kPolicies ? kPolicyPhrases[i] : kLoremPhrase;
        phrases.starts[i] = static_cast<uint16_t>(at);
        for (const char *c = phrase; *c != 0; c++) phrases.text[at++] = *c;
    }
    phrases.starts[QualityPhrases::kCount] = static_cast<uint16_t>(at);
    return phrases;
}

// The beginnings of the phrases, by beginning_slot.
struct QualityBeginnings {
    uint32_t slots[32];   // the beginning, or 0
    uint32_t phrases[32]; // bit i: phrase i begins with slots[j]
};

constexpr QualityBeginnings make_beginnings() {
    QualityBeginnings table{};
    for (const char *text : kBeginnings) table.slots[beginning_slot(four_bytes(text))] = four_bytes(text);
    for (uint32_t i = 0; i < QualityPhrases::kCount; i++) {
        const char *phrase = i < kPolicies ? kPolicyPhrases[i] : kLoremPhrase;
        table.phrases[beginning_slot(four_bytes(phrase))] |= 1u << i;
    }
    table.phrases[beginning_slot(kKelvinCook)] = table.phrases[beginning_slot(kCook)];
    return table;
}

constexpr bool all_beginnings_found() {
    for (const char *text : kBeginnings) {
        if (make_beginnings().slots[beginning_slot(four_bytes(text))] != four_bytes(text)) return false;
    }
    return true;
}
static_assert(all_beginnings_found(), "two beginnings have the same number: search for another factor");

constexpr bool all_phrases_found() {
    for (uint32_t i = 0; i < QualityPhrases::kCount; i++) {
        uint32_t beginning = four_bytes(i < kPolicies ? kPolicyPhrases[i] : kLoremPhrase);
        if (make_beginnings().slots[beginning_slot(beginning)] != beginning) return false;
    }
    return true; // if the text is too long, make_phrases isn't a constant expression
}
static_assert(all_phrases_found(), "a phrase begins with none of kBeginnings");

static __device__ const QualityBeginnings quality_beginnings = make_beginnings();
static __device__ const QualityPhrases quality_phrases = make_phrases();

// Returns whether a phrase is at a position, ignoring case.
__device__ inline bool phrase_at(const QualityText &text, uint32_t position, uint32_t phrase) {
    for (uint32_t i = quality_phrases.starts[phrase]; i < quality_phrases.starts[phrase + 1]; i++) {
        uint32_t byte = text.at(position++);
        if (byte - 'A' < 26) byte += 32;
        if (byte == 0xe2 && text.at(position) == 0x84 && text.at(position + 1) == 0xaa) byte = 'k', position += 2;
        if (byte != static_cast<uint8_t>(quality_phrases.text[i])) return false;
    }
    return true;
}

// Masks of the lanes where a phrase has been found.
struct QualityFound {
    uint32_t policy, lorem;
};

// Searches for phrases at each lane's position. `beginning` is one of kBeginnings, or 0 if no phrase begins there.
__device__ inline QualityFound find_phrases(const QualityText &text, uint32_t position, uint32_t beginning) {
    bool policy = false, lorem = false;
    uint32_t possible = beginning == 0 ? 0 : quality_beginnings.phrases[beginning_slot(beginning)];
    for (; possible != 0; possible &= possible - 1) {
        uint32_t i = lowest_bit(possible);
        if (!phrase_at(text, position, i)) continue;
        if (i < kPolicies) {
            policy = true;
        } else {
            lorem = true;
        }
    }
    return {ballot(policy), ballot(lorem)};
}

// The state of the search for URLs. All lanes have the same values.
struct QualityUrls {
    uint32_t end; // end of the last URL; no URL begins inside another

    // Counts the URL that begins with the "http" at a position, if there is one.
    __device__ void count(const QualityText &text, const uint32_t *classes, uint32_t position, QualityTally *tally) {
        if (position < end) return;
        uint32_t p = position + 4;
        if (text.at(p) == 's') p++;
        if (text.at(p) != ':' || text.at(p + 1) != '/' || text.at(p + 2) != '/') return;
        bool porn = false;
        uint32_t stop = end_of_url(text, classes, p + 3, &porn);
        if (stop == p + 3) return;
        tally->add(kUrlChars, stop - position);
        tally->add(kPornUrls, porn ? 1 : 0);
        end = stop;
    }

private:
    // Returns the first position from `from` on that isn't a byte of a URL. *porn becomes true if the bytes before it
    // contain "porn".
    static __device__ uint32_t end_of_url(const QualityText &text, const uint32_t *classes, uint32_t from, bool *porn) {
        for (;; from += 32) {
            uint32_t p = from + lane_id(), byte = text.at(p);
            bool good = has(classes, byte, kUrl) ||
                        (byte == '%' && has(classes, text.at(p + 1), kHex) && has(classes, text.at(p + 2), kHex));
            uint32_t wrong = ballot(!good), length = wrong == 0 ? 32 : lowest_bit(wrong);
            bool word = byte == 'p' && text.at(p + 1) == 'o' && text.at(p + 2) == 'r' && text.at(p + 3) == 'n';
            uint32_t words = ballot(word);
            if (length == 32 ? words != 0 : (words & bits_below(length)) != 0) *porn = true;
            if (wrong != 0) return from + length;
        }
    }

    static __device__ bool has(const uint32_t *classes, uint32_t byte, uint32_t bits) {
        return byte < 0x80 && (classes[byte] & bits) != 0;
    }
};

} // namespace millrace
