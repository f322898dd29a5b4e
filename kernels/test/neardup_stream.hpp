// Streams of records for tests of the index of near-duplicates, and a reference that follows the rule of
// internal/operator/neardup with maps.
#pragma once

#include <string.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "../neardup_finish.cuh"
#include "check.hpp"

namespace millrace {

// A kind of stream. It determines how often, in percent, records share bands with earlier records.
struct NeardupMix {
    const char *name;
    uint32_t near;     // percentage of records that copy most bands of one earlier record
    uint32_t recent;   // maximum distance to that earlier record; 0 is the whole stream
    uint32_t mosaic;   // percentage of records that copy each band from a different earlier record
    bool chain;        // whether each record shares one band with the previous record
    uint32_t universe; // number of different values of a band; 0 is unlimited
};

const NeardupMix neardup_mixes[] = {
    {"unrelated", 0, 0, 0, false, 0},      {"near", 50, 0, 0, false, 0},          {"recent", 50, 7, 0, false, 0},
    {"chain", 0, 0, 0, true, 0},           {"chain and near", 30, 20, 0, true, 0}, {"equal", 0, 0, 0, false, 1},
    {"contention", 0, 0, 0, false, 3},     {"crowded", 0, 0, 0, false, 40},       {"mosaic", 10, 0, 70, false, 0},
    {"recent mosaic", 10, 30, 80, false, 0},
};

struct NeardupStream {
    uint32_t bands;
    std::vector<unsigned long long> keys;
    std::vector<NeardupPosition> positions;

    NeardupStream(Random &random, uint32_t bands, const NeardupMix &mix, uint32_t records) : bands(bands) {
        uint32_t band_bits = 0;
        while ((1u << band_bits) <= bands) band_bits++;
        NeardupPosition position = {1 + random.below(1000), 0};
        for (uint32_t r = 0; r < records; r++) {
            auto earlier = [&] { return mix.recent == 0 ? random.below(r) : r - 1 - random.below(min(mix.recent, r)); };
            bool near = r != 0 && random.below(100) < mix.near, mosaic = r != 0 && random.below(100) < mix.mosaic;
            uint32_t source = near ? earlier() : 0, shared = random.below(bands);
            for (uint32_t b = 0; b < bands; b++) {
                uint64_t value = mix.universe == 0 ? random.next() : (1 + random.below(mix.universe)) * 0x9e3779b97f4a7c15ull;
                value = value >> band_bits << band_bits | (b + 1);
                if (mix.chain && r != 0 && b == shared) value = keys[(r - 1) * size_t(bands) + b];
                else if (near && random.below(4) != 0) value = keys[source * size_t(bands) + b];
                else if (mosaic) value = keys[earlier() * size_t(bands) + b];
                keys.push_back(value);
            }
            position.record++;
            if (random.below(3) == 0) position = {position.sequence + 1 + random.below(300), random.below(3)};
            positions.push_back(position);
        }
    }
    uint32_t records() const { return static_cast<uint32_t>(positions.size()); }
};

// The results of one record: its row, the `also` labels, and the carried labels with their bands.
struct NeardupAnswer {
    NeardupRow row;
    std::vector<NeardupPosition> also, carried;
    std::vector<uint64_t> carried_bands;

    bool operator==(const NeardupAnswer &other) const {
        return memcmp(&row, &other.row, sizeof row) == 0 && also == other.also && carried == other.carried && carried_bands == other.carried_bands;
    }
};

// Reads a record's answer from a batch's result.
inline NeardupAnswer neardup_answer(const uint8_t *result, uint32_t records, uint32_t record, uint32_t bands) {
    NeardupAnswer answer;
    const NeardupRow *rows = reinterpret_cast<const NeardupRow *>(result + sizeof(NeardupHeader));
    answer.row = rows[record];
    const uint64_t *list = reinterpret_cast<const uint64_t *>(rows + records) + record * size_t(neardup_list_words(bands));
    for (uint32_t i = 0; i < answer.row.also; i++) answer.also.push_back({list[2 * i], list[2 * i + 1]});
    list += neardup_also_words(bands);
    for (uint32_t i = 0; i < answer.row.carries && !answer.row.relabeled; i++) {
        answer.carried.push_back({list[3 * i], list[3 * i + 1]});
        answer.carried_bands.push_back(list[3 * i + 2]);
    }
    return answer;
}

// The reference. It has a map for each generation.
class NeardupReference {
  public:
    NeardupReference(uint32_t bands, uint64_t records) : bands_(bands), limit_(records) {}

    uint64_t carried() const { return carried_; }

    NeardupAnswer apply(const NeardupPosition &position, const unsigned long long *keys) {
        if (filled_ == limit_) {
            old_.swap(young_);
            young_.clear();
            filled_ = carried_ = 0;
        }
        filled_++;
        NeardupAnswer answer = {};
        std::vector<NeardupPosition> labels;
        for (uint32_t b = 0; b < bands_; b++) look_up(keys[b], b, &answer, &labels);
        answer.row.hits = static_cast<uint8_t>(labels.size());
        std::sort(labels.begin(), labels.end());
        labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
        answer.row.label = labels.empty() ? position : labels[0];
        if (!labels.empty()) answer.also.assign(labels.begin() + 1, labels.end());
        answer.row.also = static_cast<uint8_t>(answer.also.size());
        insert(keys, &answer);
        return answer;
    }

  private:
    using Map = std::unordered_map<uint64_t, NeardupPosition>;

    void look_up(uint64_t key, uint32_t band, NeardupAnswer *answer, std::vector<NeardupPosition> *labels) {
        auto young = young_.find(key), old = old_.find(key);
        if (young != young_.end()) return labels->push_back(young->second);
        answer->row.inserted |= 1ull << band;
        if (old == old_.end()) return;
        labels->push_back(old->second);
        auto at = std::find(answer->carried.begin(), answer->carried.end(), old->second);
        if (at == answer->carried.end()) {
            answer->carried.push_back(old->second);
            answer->carried_bands.push_back(0);
            at = answer->carried.end() - 1;
        }
        answer->carried_bands[at - answer->carried.begin()] |= 1ull << band;
    }

    void insert(const unsigned long long *keys, NeardupAnswer *answer) {
        answer->row.carries = static_cast<uint8_t>(answer->carried.size());
        carried_ += answer->carried.size();
        if (answer->row.carries != 0 && carried_ > limit_) {
            answer->row.relabeled = 1;
            answer->carried.clear();
            answer->carried_bands.clear();
        }
        for (uint32_t b = 0; b < bands_; b++) {
            if (!(answer->row.inserted >> b & 1)) continue;
            NeardupPosition label = answer->row.label;
            for (size_t i = 0; i < answer->carried.size(); i++) {
                if (answer->carried_bands[i] >> b & 1) label = answer->carried[i];
            }
            young_[keys[b]] = label;
        }
    }

    uint32_t bands_;
    uint64_t limit_, filled_ = 0, carried_ = 0;
    Map young_, old_;
};

// The rows of a log, in the form that replay needs. They belong to one generation.
struct NeardupLog {
    std::vector<NeardupPosition> labels, carried;
    std::vector<unsigned long long> keys;
    std::vector<uint32_t> key_labels;
    uint32_t carries = 0;

    // Adds a record. `number` is its number in its generation of `limit` records. `carries_before` is the number of labels that the
    // generation's earlier records carry over, including labels for which there was no space.
    void add(const NeardupAnswer &answer, const unsigned long long *record_keys, uint64_t number, uint64_t limit, uint64_t carries_before) {
        labels.push_back(answer.row.label);
        for (uint32_t b = 0; b < 64; b++) {
            if (!(answer.row.inserted >> b & 1)) continue;
            uint64_t label = limit + number;
            for (size_t i = 0; i < answer.carried.size(); i++) {
                if (answer.carried_bands[i] >> b & 1) label = carries_before + i;
            }
            keys.push_back(record_keys[b]);
            key_labels.push_back(static_cast<uint32_t>(label));
        }
        carried.insert(carried.end(), answer.carried.begin(), answer.carried.end());
        carries += answer.row.carries;
    }
};

} // namespace millrace
