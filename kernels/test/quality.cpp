// Tests quality on the host: known answers, and generated texts that are compared with a reference. These texts reveal mistakes
// at the edges of steps, words, lines, paragraphs and segments.
#include "cuda_on_host.hpp"

#include "../quality_kernels.cuh"
#include "check.hpp"
#include "quality_answers.hpp"

using namespace millrace;

using Counters = std::map<std::string, uint32_t>;

// The settings of a test: the division of records, the seed of hashes, and the settings of duplicate n-grams.
struct Division {
    uint32_t tile, longest_whole, seed;
    bool ngrams;
    uint32_t shared_words; // maximum number of words of a record for quality_ngrams; quality_long_ngrams processes the other records
    bool large_blocks;     // whether blocks have as many threads as on a GPU; threads are slow fibers here
};

// Large tiles that leave every record whole, and tiles that divide most records.
static const Division divisions[] = {
    {kQualityTile, kQualityWhole, 1, true, kSharedWords, false}, {32, 64, 2, false, 0, false}, {50, 100, 3, true, 0, false}, {256, 600, 4, true, 20, false}};

// The results of a batch: the counters and the statuses of its rows.
struct QualityResult {
    uint32_t stride; // number of counters of a row
    std::vector<uint32_t> fields;
    std::vector<uint8_t> status;
};

// Runs the kernels for n-grams.
static void run_ngrams(const Batch &batch, const Division &division, const QualityWork &work) {
    std::vector<uint32_t> memory(ngrams_memory(batch.length, batch.rows), 0xdeadbeef), waiting(1 + batch.rows, 0xdeadbeef);
    waiting[0] = 0;
    QualityNgramsWork ngrams = {work, division.shared_words, memory.data(), waiting.data()};
    emulator::launch(batch.rows, kNgramThreads, quality_ngrams, ngrams);
    if (division.large_blocks) {
        emulator::launch(2, kLongNgramThreads, quality_long_ngrams<kLongNgramThreads>, ngrams);
    } else {
        emulator::launch(2, 64, quality_long_ngrams<64>, ngrams);
    }
}

static QualityResult run_quality(const Batch &batch, const Division &division) {
    uint32_t longest = 0, tiles = tile_count(batch.length, division.tile);
    for (uint32_t r = 0; r < batch.rows; r++) longest = max(longest, batch.offsets[r + 1] - batch.offsets[r]);
    if (longest <= division.longest_whole) tiles = 0;
    uint32_t stride = division.ngrams ? kQualityAllFields : kQualityFields;
    QualityResult result = {stride, std::vector<uint32_t>(batch.rows * stride, tiles == 0 ? 0xdeadbeef : 0),
                            std::vector<uint8_t>(batch.rows, tiles == 0 ? 0xee : 0)};
    std::vector<unsigned long long> entries(quality_entries(batch.length, batch.rows), 0xdeadbeefdeadbeef);
    std::vector<uint32_t> ends(2 * tiles, 0xdeadbeef), trimmed(2 * tiles, 0xdeadbeef);
    QualityWork work = {batch.bytes, batch.offsets.data(), batch.rows, batch.length, division.tile, division.longest_whole, tiles,
                        division.seed, stride, result.fields.data(), result.status.data(), entries.data(), ends.data(), trimmed.data()};
    uint32_t rows = (batch.rows + kQualityWarps - 1) / kQualityWarps, units = (batch.rows + tiles + kQualityWarps - 1) / kQualityWarps;
    emulator::launch(units, kQualityThreads, quality_scan, work);
    if (tiles != 0) emulator::launch(rows, kQualityThreads, quality_settle, work);
    emulator::launch(units, kQualityThreads, quality_repeats, work);
    if (division.ngrams) run_ngrams(batch, division, work);
    return result;
}

// Compares the results of a row. `counters` may contain more counters than the operator has. For a row that isn't UTF-8, it is
// empty.
static void check_row(const char *what, const std::string &text, const QualityResult &got, uint32_t row, const Counters &counters, const Division &d) {
    CHECK_EQUAL(got.status[row], counters.empty() ? 1u : 0u, "status of %s, row %u of %zu bytes, tiles of %u", what, row, text.size(), d.tile);
    for (uint32_t f = 0; f < got.stride; f++) {
        auto found = counters.find(kQualityNames[f]);
        uint32_t want = found == counters.end() ? 0 : found->second;
        if (got.fields[row * got.stride + f] != want) fprintf(stderr, "the text: <<<%s>>>\n", text.c_str());
        CHECK_EQUAL(got.fields[row * got.stride + f], want, "%s of %s, row %u of %zu bytes, tiles of %u", kQualityNames[f], what, row,
                    text.size(), d.tile);
    }
}

static void check_known_answers(uint32_t lead, const Division &division) {
    Rows rows;
    for (const QualityAnswer &answer : quality_answers) rows.push_back(answer.text);
    QualityResult got = run_quality(Batch(rows, lead), division);
    for (uint32_t r = 0; r < rows.size(); r++) {
        Counters counters(quality_answers[r].counters.begin(), quality_answers[r].counters.end());
        check_row(quality_answers[r].name, rows[r], got, r, counters, division);
        Counters slow;
        CHECK_EQUAL(slow_quality(rows[r], &slow), !counters.empty(), "the reference's status of %s", quality_answers[r].name);
        for (auto &[name, value] : slow) CHECK_EQUAL(value, counters[name], "the reference's %s of %s", name.c_str(), quality_answers[r].name);
    }
}

static void check_texts(const char *what, const Rows &rows, uint32_t lead, const Division &division) {
    QualityResult got = run_quality(Batch(rows, lead), division);
    for (uint32_t r = 0; r < rows.size(); r++) {
        Counters slow;
        slow_quality(rows[r], &slow);
        check_row(what, rows[r], got, r, slow, division);
    }
}

// Parts of random texts.
static const char *const pieces[] = {
    "a", "the", "and", "with", "be", "of", "to", "that", "have", "#", "##", "...", "[...]", "(...)", "…", "[…]", "-»", "»", "(…)",
    "read more", "READ more..", "read  more", ".", "?", "!", "\"", "'", "•", "◦", "-", "*", "‣", " ", " ", " ", "\t", "\r", "\r\n", "\n", "\n",
    "\n\n", "\n\n\n", "\n\n\n\n", "\x1c", "\x1f", "\b", "\v", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000", "\u200b", "é", "中文", "😀", "\U0001e900",
    "\u0903", "٠", "。", "\u1362", "7", "42", "(", "]", "⟨", "http", "https", "://", "http://", "https://a.b/c", "http://x%41%4g", "%", "%2", "porn",
    "http://porn", "lorem ipsum", "Lorem", " ipsum", "terms of use", "Privacy Policy", "coo\u212aie policy", "use cookies", "uses cookies",
    "use of coo\u212aie", "s", "privacy & cookies policy", "any cookies", "word", "中\n", "\x01\n", "same line", "same line\n", "x\n\nx\n\n", "\u0130", "K", "\u212a",
};

static std::string random_text(Random &random, uint32_t count) {
    std::string text;
    uint32_t few = 1 + random.below(sizeof pieces / sizeof pieces[0]), first = random.below(sizeof pieces / sizeof pieces[0]);
    if (random.below(3) != 0) few = sizeof pieces / sizeof pieces[0];
    for (uint32_t i = 0; i < count; i++) text += pieces[(first + random.below(few)) % (sizeof pieces / sizeof pieces[0])];
    return text;
}

// Every kind of bytes that aren't UTF-8, with text before and after them.
static Rows invalid_texts(Random &random) {
    Rows rows;
    for (const char *bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xdf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe1\x80", "\xed\xa0\x80",
                            "\xed\xbf\xbf", "\xef\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                            "\xf8", "\xff", "\xc2\xc2\x80", "\xe2\x82\x41", "\xf0\x9f\x41\x80", "\xc3\xa9\xa9", "\xe4\xb8\xad\x80", "\xf0\x9f\x98\x80\x80"}) {
        rows.push_back(bad);
        rows.push_back(std::string(27 + random.below(7), 'x') + bad);
        rows.push_back(random_text(random, 10) + bad + random_text(random, 10));
    }
    for (uint32_t before = 28; before < 33; before++) rows.push_back(std::string(before, 'x') + "\xe4\xb8" + "only ASCII in the next step");
    for (const char *good : {"\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"}) rows.push_back(good);
    return rows;
}

// A pattern at every position around the edge between two steps.
static Rows shifted(const std::string &pattern) {
    Rows rows;
    for (uint32_t before : {0u, 1u, 31u - static_cast<uint32_t>(pattern.size()) % 31}) {
        for (uint32_t shift = 0; shift < 34; shift += 1 + shift % 3) rows.push_back(std::string(before, '\n') + std::string(shift, 'z') + " " + pattern + " z");
    }
    return rows;
}

static void check_edges() {
    for (const char *pattern : {"the", "[...]", "[…]", "\nend [...]\n", "http://porn%41b", "\n\n\n\nlorem ipsum\n\n", "coo\u212aie policy", "read more..\n",
                                "\u3000•x", "\r\n", "#a#b#", "##", "\u2028", "a\n\n\na\n\n\na\n"}) {
        check_texts("a shifted pattern", shifted(pattern), 3, divisions[0]);
    }
}

// Returns all texts of at most `most` characters of an alphabet.
static Rows all_texts(const std::string &alphabet, uint32_t most) {
    Rows rows = {""};
    for (size_t from = 0, length = 0; length < most; length++) {
        size_t to = rows.size();
        for (; from < to; from++) {
            for (char c : alphabet) rows.push_back(rows[from] + c);
        }
    }
    return rows;
}

static void check_adversaries() {
    Rows rows = {std::string(3000, '\n'), std::string(3000, ' '), std::string(9000, 'a'), std::string(900, '#'), "\n" + std::string(70, '\n') + "x"};
    std::string lines, paragraphs, urls, words;
    for (int i = 0; i < 700; i++) lines += "a\n", paragraphs += "b\n\n", words += "any ";
    for (int i = 0; i < 60; i++) urls += "http://", urls += i % 7 == 0 ? " " : "";
    for (const std::string &row : {lines, paragraphs, urls, words, std::string(200, 'u') + "\n" + std::string(199, 'v')}) rows.push_back(row);
    for (const Division &division : divisions) check_texts("an adversary's text", rows, 1, division);
}

static void check_batches(Random &random) {
    for (uint32_t round = 0; round < 12; round++) {
        Rows rows;
        for (uint32_t r = 0; r < 12; r++) rows.push_back(random.below(6) == 0 ? "" : random_text(random, random.below(r == 0 ? 400 : 60)));
        check_texts("random texts", rows, round % 4 == 0 ? 15 : round, divisions[round % 4]);
    }
    check_texts("invalid texts", invalid_texts(random), 5, divisions[0]);
    check_texts("invalid texts", invalid_texts(random), 5, divisions[1]);
    check_texts("empty rows", Rows(9), 0, divisions[1]);
}

// Words for n-grams. Their lengths are near the maximum that one thread compares, and some words differ only in the middle.
static std::vector<std::string> gram_words() {
    std::vector<std::string> words = {"a", "b", "ab", "é", "e\u0301", "中文", "\u200b", std::string(1, '\0'), std::string(2, '\0'), "\x01"};
    for (uint32_t bytes : {kShortWord - 1, kShortWord, kShortWord + 1, 64u, 65u, 200u}) {
        for (char middle : {'x', 'y'}) {
            words.push_back(std::string(bytes, 'w'));
            words.back()[bytes / 2] = middle;
        }
    }
    for (uint32_t i = 100; i < 500; i++) words.push_back((i % 3 == 0 ? std::string(kShortWord, 'l') : "") + std::to_string(i));
    return words;
}

// Returns a text of `count` words of the first `few`. Half of the texts repeat earlier parts.
static std::string gram_text(Random &random, uint32_t count, uint32_t few) {
    static const std::vector<std::string> words = gram_words();
    static const char *const separators[] = {" ", " ", " ", "\n", "  ", "\u00a0", "\u2003\r\n", "\u3000", "\x1c"};
    std::vector<uint32_t> chosen;
    bool repeats = random.below(2) == 0;
    while (chosen.size() < count) {
        uint32_t size = static_cast<uint32_t>(chosen.size()), copied = repeats && random.below(9) == 0 ? random.below(25) : 0;
        for (uint32_t i = 0, from = random.below(size + 1); i < copied && from + i < size; i++) chosen.push_back(chosen[from + i]);
        chosen.push_back(random.below(few));
    }
    std::string text = random.below(4) == 0 ? " " : "";
    for (uint32_t word : chosen) text += words[word] + separators[random.below(sizeof separators / sizeof separators[0])];
    if (random.below(2) == 0) text += "last";
    return text;
}

static void check_ngrams(Random &random) {
    const uint32_t most = static_cast<uint32_t>(gram_words().size());
    for (uint32_t round = 0; round < 8; round++) {
        Rows rows;
        for (uint32_t few : {1u, 2u, 3u, 10u, 22u, most, most}) rows.push_back(gram_text(random, random.below(few == most ? 600 : 120), few));
        check_texts("words", rows, round, {kQualityTile, kQualityWhole, round, true, round % 2 == 0 ? kSharedWords : 40, false});
    }
    Rows counts; // texts with no words, too few words, and just enough words
    for (uint32_t count = 0; count < 70; count++) counts.push_back(count % 2 == 0 ? gram_text(random, count, 1) : gram_text(random, count, 3));
    check_texts("few words", counts, 0, divisions[0]);
    Rows varied(2); // n-grams that differ in one word, which has the same number of bytes
    for (uint32_t i = 100; i < 400; i++) {
        varied[0] += "a b c d " + std::to_string(i) + "\n";
        varied[1] += "a b c d " + std::string(kShortWord, 'l') + std::to_string(i) + "\n";
    }
    check_texts("varied words", varied, 0, divisions[0]);
    check_texts("varied words", varied, 0, divisions[2]);
    check_texts("many words", {gram_text(random, 1500, most), "", gram_text(random, 1300, 2)}, 1, {kQualityTile, kQualityWhole, 9, true, kSharedWords, true});
}

void check_quality() {
    Random random(11);
    check_known_answers(0, divisions[0]);
    check_known_answers(7, divisions[2]);
    check_edges();
    check_texts("short texts", all_texts("a \n", 5), 0, divisions[0]);
    check_texts("short texts of two characters", all_texts("a\n", 7), 0, divisions[0]);
    check_adversaries();
    check_batches(random);
    check_ngrams(random);
}
