// Tests the parts of the yardstick that don't use CUDA: requests, answers, quantiles, and the check of results.
#include <math.h>
#include <string.h>

#include "../bench/failure.hpp"
#include "../bench/forms.hpp"
#include "../bench/input.hpp"
#include "../bench/json.hpp"
#include "../bench/quantile.hpp"
#include "../math/mix.cuh"
#include "check.hpp"

using namespace yardstick;

static void want_text(const std::string &got, const std::string &want) {
    if (got == want) return;
    fprintf(stderr, "got  %s\nwant %s\n", got.c_str(), want.c_str());
    exit(1);
}

// Checks that the request fails with a message that contains `words`.
static void want_refused(const std::string &line, const std::string &words) {
    try {
        (void)parse(line, forms());
    } catch (const BadRequest &error) {
        if (std::string(error.what()).find(words) != std::string::npos) return;
        fprintf(stderr, "\"%s\" is refused with \"%s\", want \"%s\" in it\n", line.c_str(), error.what(), words.c_str());
        exit(1);
    }
    fprintf(stderr, "\"%s\" is not refused\n", line.c_str());
    exit(1);
}

static void check_requests() {
    Request balanced = parse("balanced bytes=1048576 rounds=7  slots=4\tbatches=100 wait=blocking device=1\r", forms());
    want_text(balanced.name(), "balanced");
    CHECK_EQUAL(balanced["bytes"], 1048576u, "bytes");
    CHECK_EQUAL(balanced["rounds"], 7u, "rounds");
    CHECK_EQUAL(balanced["wait"], static_cast<uint64_t>(Wait::blocking), "wait");
    CHECK_EQUAL(balanced["device"], 1u, "device");
    Request fallbacks = parse("alloc mode=asynckept least=65536 most=1048576 rounds=0 batches=1", forms());
    CHECK_EQUAL(fallbacks["mode"], static_cast<uint64_t>(ScratchMode::async_kept), "mode");
    CHECK_EQUAL(fallbacks["slots"], 4u, "the default of slots");
    CHECK_EQUAL(fallbacks["wait"], static_cast<uint64_t>(Wait::sync), "the default of wait");
    CHECK_EQUAL(fallbacks["device"], 0u, "the default of device");
    CHECK_EQUAL(parse("completion way=hostfunc", forms())["way"], static_cast<uint64_t>(Way::hostfunc), "way");
    CHECK_EQUAL(parse("copy bytes=268435456", forms())["bytes"], 256u << 20, "the upper bound");
    CHECK_EQUAL(parse("copy bytes=4", forms())["bytes"], 4u, "the lower bound");
}

static void check_refusals() {
    want_refused("", "give one of device, copy, calibrate");
    want_refused("balance bytes=4", "unknown request \"balance\"");
    want_refused("copy", "bytes is missing: give 4 to 268435456, a multiple of 4");
    want_refused("copy byte=4", "it takes bytes, repeats, device");
    want_refused("copy bytes", "is not one of its keys with a value");
    want_refused("copy bytes=4 bytes=8", "bytes is given twice");
    want_refused("completion way=signal", "way=signal: give poll|sync|blocking|hostfunc");
    want_refused("device device=64", "device=64: give 0 to 63");
    for (const char *bytes : {"", "0", "3", "6", "268435460", "-4", "+4", "4x", "0x10", "4.0", "99999999999999999999999"}) {
        want_refused("copy bytes=" + std::string(bytes), "give 4 to 268435456");
    }
    want_refused("copy bytes=4 " + std::string(kMostLineBytes, ' '), "give one request a line");
}

static void check_forms() {
    std::string text = help();
    for (const Form &form : forms()) {
        if (text.find("\n" + form.name + ": ") == std::string::npos) want_text(text, form.name);
        for (const Key &key : form.keys) {
            if (key.fallback.empty()) continue;
            // Checks the default, because otherwise only a request that uses the default would detect an invalid one.
            std::vector<Form> alone = {{form.name, {key}, "", ""}};
            (void)parse(form.name, alone)[key.name];
        }
    }
    CHECK_EQUAL(forms()[0].keys.back().name == "device", true, "every request takes a device");
}

static void check_json() {
    want_text(Json().line(), "{}");
    want_text(Json().count("a", ~0ull).number("b", 1.5e-6).boolean("c", true).object("d", Json().boolean("e", false)).line(),
              "{\"a\": 18446744073709551615, \"b\": 1.5e-06, \"c\": true, \"d\": {\"e\": false}}");
    want_text(Json().text("error", "a \"b\" \\ \n\x01").line(), "{\"error\": \"a \\\"b\\\" \\\\ \\u000a\\u0001\"}");
    for (double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
        try {
            (void)Json().number("seconds", bad);
        } catch (const Failure &) {
            continue;
        }
        want_text("a number that is not finite", "refused");
    }
}

static void check_quantiles() {
    auto thousandths = [](double value) { return static_cast<unsigned long long>(lround(value * 1000)); };
    CHECK_EQUAL(thousandths(median({7})), 7000u, "one sample");
    CHECK_EQUAL(thousandths(median({3, 1, 2})), 2000u, "odd");
    CHECK_EQUAL(thousandths(median({4, 1, 3, 2})), 2500u, "even");
    CHECK_EQUAL(thousandths(quantile({5, 1, 3}, 0)), 1000u, "the least");
    CHECK_EQUAL(thousandths(quantile({5, 1, 3}, 1)), 5000u, "the greatest");
    std::vector<double> hundred;
    for (int i = 100; i >= 0; i--) hundred.push_back(i);
    CHECK_EQUAL(thousandths(quantile(hundred, 0.99)), 99000u, "the 99th percentile of 0 to 100");
    try {
        (void)median({});
    } catch (const Failure &) {
        return;
    }
    want_text("the median of nothing", "refused");
}

// Returns whether the input's check finds an error in an output.
static bool found_wrong(const Input &input, const std::vector<uint8_t> &output, uint64_t slot) {
    try {
        input.check(output.data(), output.size(), slot, "the batch");
    } catch (const Failure &error) {
        return strncmp(error.what(), "the batch is wrong: word", 24) == 0;
    }
    return false;
}

static void check_input() {
    const uint32_t rounds = 5;
    Input input(1, rounds);
    std::vector<uint8_t> batch(40000), other(40000), output(40000);
    input.fill(batch.data(), batch.size(), 0);
    input.fill(other.data(), other.size(), 1);
    CHECK_EQUAL(batch == other, false, "two slots have different batches");
    Input(2, rounds).fill(other.data(), other.size(), 0);
    CHECK_EQUAL(batch == other, false, "two seeds give different batches");
    for (size_t at = 0; at < batch.size(); at += 4) {
        uint32_t word;
        memcpy(&word, &batch[at], 4);
        for (uint32_t r = 0; r < rounds; r++) word = millrace::mix_round(word);
        memcpy(&output[at], &word, 4);
    }
    CHECK_EQUAL(found_wrong(input, output, 0), false, "what mix makes of it is right");
    CHECK_EQUAL(found_wrong(input, output, 1), true, "it is another slot's");
    CHECK_EQUAL(found_wrong(input, batch, 0), true, "it was not mixed");
    for (size_t at : {size_t{0}, output.size() / 2, output.size() - 1}) {
        output[at] ^= 1;
        CHECK_EQUAL(found_wrong(input, output, 0), true, "byte %zu is wrong", at);
        output[at] ^= 1;
    }
}

void check_yardstick() {
    check_requests();
    check_refusals();
    check_forms();
    check_json();
    check_quantiles();
    check_input();
}
