// The code around an operator's code: its description, and the loop over the records of a batch.
#pragma once

#include "millrace/declare.cuh"
#include "millrace/passes.cuh"
#include "millrace/team.cuh"

namespace millrace {

// The description in a compiled operator: the structure followed by its entries.
template <uint32_t kParameters, uint32_t kFields, uint32_t kReasons, uint32_t kPasses>
struct Description {
    millrace_description head;
    millrace_parameter parameters[kParameters + 1]; // each with an additional entry, because C++ has no empty arrays
    millrace_field fields[kFields + 1];
    millrace_reason reasons[kReasons + 1];
    millrace_pass passes[kPasses + 1];
};

template <class P, class R, class Reason, class S, class Pass>
using DescriptionOf = Description<P::internal_count_, R::internal_count_, Reason::internal_count_, Pass::internal_count_>;

template <class P, class R, class Reason, class S, class Pass>
MILLRACE_CONSTEXPR DescriptionOf<P, R, Reason, S, Pass> describe(const char *name, uint32_t version, uint32_t form,
                                                                 uint32_t threads, uint32_t teams) {
    static_assert(R::internal_count_ > 0, "declare at least one field with MILLRACE_RESULT");
    static_assert(P::internal_count_ <= MILLRACE_MOST_PARAMETERS, "too many parameters");
    static_assert(R::internal_count_ <= MILLRACE_MOST_FIELDS, "too many fields");
    static_assert(Reason::internal_count_ <= MILLRACE_MOST_REASONS, "too many reasons");
    static_assert(Pass::internal_count_ <= MILLRACE_MOST_PASSES, "an operator has at most 8 passes");
    static_assert(S::internal_count_ == 0 || Pass::internal_count_ > 0, "no pass fills the scratch memory: add one with MILLRACE_PASS");
    using All = DescriptionOf<P, R, Reason, S, Pass>;
    All all{};
    millrace_description &head = all.head;
    copy_text(head.magic, MILLRACE_DESCRIPTION_MAGIC);
    copy_text(head.name, name);
    head.size = sizeof head, head.bytes = sizeof all, head.contract = 1, head.batch_size = sizeof(millrace_batch);
    head.version = version, head.form = form, head.threads = threads, head.teams = teams, head.checked = kChecked;
    head.parameter_bytes = P::internal_bytes_;
    head.parameters = P::internal_count_, head.parameter_size = sizeof(millrace_parameter);
    head.parameters_at = sizeof head;
    head.fields = R::internal_count_, head.field_size = sizeof(millrace_field);
    head.fields_at = head.parameters_at + sizeof all.parameters;
    head.reasons = Reason::internal_count_, head.reason_size = sizeof(millrace_reason);
    head.reasons_at = head.fields_at + sizeof all.fields;
#ifdef MILLRACE_SOURCE // the bytes of the source file's hash, separated by commas
    constexpr uint8_t source[32] = {MILLRACE_SOURCE};
    for (uint32_t i = 0; i < 32; i++) head.source[i] = source[i];
#endif
    head.passes = Pass::internal_count_, head.pass_size = sizeof(millrace_pass);
    head.passes_at = head.reasons_at + sizeof all.reasons;
    if (Pass::internal_count_ > 0) {
        head.scratch_bytes = S::internal_bytes_, head.scratch_per_row = S::internal_per_row_, head.scratch_per_byte = S::internal_per_byte_;
    }
    P::internal_describe_(all.parameters);
    R::internal_describe_(all.fields);
    Reason::internal_describe_(all.reasons);
    Pass::internal_describe_(all.passes);
    return all;
}

#ifdef MILLRACE_GPU

// An array in shared memory for each team of a block.
template <class T, uint32_t kCount, uint32_t kTeams, uint32_t kLanes>
struct SharedOf {
    using Array = T[kCount];
    static MILLRACE_DEVICE Array &of(T *all) {
        return *reinterpret_cast<Array *>(all + kCount * (kTeams == 1 ? 0 : threadIdx.x / kLanes));
    }
};

// An array in shared memory for each thread. The threads' elements with the same index are neighbors, so threads of a warp never
// wait for the same bank.
template <class T, uint32_t kCount, uint32_t kTeams>
class SharedOf<T, kCount, kTeams, 1> {
public:
    static MILLRACE_DEVICE SharedOf of(T *all) { return SharedOf(all + threadIdx.x); }
    MILLRACE_DEVICE T &operator[](uint32_t i) const { return own_[i * kTeams]; }

private:
    MILLRACE_DEVICE explicit SharedOf(T *own) : own_(own) {}
    T *own_;
};

#endif

// The code of an operator.
template <class P, class R, class S, class Team>
using Body = void (*)(const typename RecordOf<S>::Type &, const P &, R &, const Team &);

// Computes the result of one record with all lanes of a team.
template <class P, class R, class S, class Team, Body<P, R, S, Team> kBody>
MILLRACE_DEVICE void run_record(const millrace_batch &batch, const P &params, uint32_t row, const Team &team) {
    const uint32_t *offsets = reinterpret_cast<const uint32_t *>(batch.offsets);
    uint32_t start = offsets[row], size = offsets[row + 1] - start;
    Place place(batch, row, start, size);
    if (R::internal_arrays_) {
        R::internal_clear_(place, params, team);
        place.restart();
        team.sync();
    }
    ScratchPlace scratch_place(batch);
    S scratch(scratch_place);
    const uint8_t *data = reinterpret_cast<const uint8_t *>(batch.data);
    const typename RecordOf<S>::Type record =
        RecordOf<S>::open(Record(data + start, size, data, data + batch.bytes, Team::kReading), scratch, row, start);
    R result(place, params);
    params.internal_forget_out_of_bounds_(); // clears the flag of the previous record
    kBody(record, params, result, team);

    uint32_t code = result.internal_code_;
    bool outside = record.out_of_bounds_occurred() || result.internal_out_of_bounds_() || scratch.internal_out_of_bounds_() || params.internal_out_of_bounds_();
    if (kChecked && outside) code = MILLRACE_OUT_OF_BOUNDS;
    code = team.max(code);
    if (kChecked && S::internal_count_ > 0 && *fault_word(batch) != 0) code = MILLRACE_BATCH_OUT_OF_BOUNDS; // for all lanes
    place.restart();
    if (code != MILLRACE_DONE && R::internal_arrays_) {
        team.sync(); // all lanes write their array elements before the zeros are written
        R::internal_clear_(place, params, team);
        place.restart();
    }
    if (team.lane() == 0) {
        result.internal_store_(place, params, code == MILLRACE_DONE);
        for (uint32_t i = place.at; i < batch.stride; i++) place.record[i] = 0;
        reinterpret_cast<uint8_t *>(batch.status)[row] = static_cast<uint8_t>(code);
    }
    team.sync(); // the next record uses the same shared memory
}

} // namespace millrace

#ifdef MILLRACE_GPU

// Declares an array of a team in shared memory, with undefined contents: `type name[count]`. With one thread per
// record, each thread has its own array, which supports only name[i].
#define MILLRACE_SHARED(type, name, count)                                   \
    __shared__ type millrace_all_##name[millrace_teams * (count)];           \
    decltype(auto) name = millrace::SharedOf<type, (count), millrace_teams, millrace_lanes>::of(millrace_all_##name)

#define MILLRACE_ENTRY(N, Team, form, threads, teams)                                                              \
    extern "C" {                                                                                                    \
    __device__ millrace::DescriptionOf<MILLRACE_DECLARED(N)> millrace_operator_description =                        \
        millrace::describe<MILLRACE_DECLARED(N)>(millrace_operator_name, millrace_operator_version, form, threads, teams); \
    __global__ void __launch_bounds__(threads) millrace_operator_run(                                               \
        const __grid_constant__ millrace_batch batch,                                                               \
        const __grid_constant__ millrace::Block<millrace::Parameters<N>::internal_bytes_> block) {                  \
        constexpr uint32_t lanes = threads / teams;                                                                 \
        const millrace::Parameters<N> params(block.bytes, batch.tables);                                            \
        const Team team;                                                                                            \
        for (uint32_t row = (blockIdx.x * threads + threadIdx.x) / lanes; row < batch.rows; row += gridDim.x * teams) { \
            millrace::run_record<millrace::Parameters<N>, millrace::Result<N>, millrace::Scratch<N>, Team,          \
                                 millrace_operator_code>(                                                           \
                batch, params, row, team);                                                                          \
        }                                                                                                           \
    }                                                                                                               \
    }

#define MILLRACE_WARP_TEAM(warps) millrace::WarpTeam<warps>
#define MILLRACE_BLOCK_TEAM(threads) millrace::BlockTeam<threads>

#else

#define MILLRACE_SHARED(type, name, count) type name[(count)]

#define MILLRACE_ENTRY(N, Team, form, threads, teams)                                                              \
    extern "C" {                                                                                                    \
    extern __attribute__((visibility("default"))) const millrace::DescriptionOf<MILLRACE_DECLARED(N)>               \
        millrace_operator_description;                                                                              \
    constexpr millrace::DescriptionOf<MILLRACE_DECLARED(N)>                                                         \
        millrace_operator_description =                                                                             \
            millrace::describe<MILLRACE_DECLARED(N)>(millrace_operator_name, millrace_operator_version, form, threads, teams); \
    /* Computes the records from `first` up to, but not including, `end`. Calls for separate records may overlap. */ \
    __attribute__((visibility("default"))) void millrace_operator_run(const millrace_batch *batch, const void *block, \
                                                                      uint32_t first, uint32_t end) {               \
        const millrace::Parameters<N> params(static_cast<const uint8_t *>(block), batch->tables);                   \
        const Team team;                                                                                            \
        for (uint32_t row = first; row < end; row++) {                                                              \
            millrace::run_record<millrace::Parameters<N>, millrace::Result<N>, millrace::Scratch<N>, Team,          \
                                 millrace_operator_code>(                                                           \
                *batch, params, row, team);                                                                         \
        }                                                                                                           \
    }                                                                                                               \
    }

#define MILLRACE_WARP_TEAM(warps) millrace::OneLane
#define MILLRACE_BLOCK_TEAM(threads) millrace::OneLane

#endif

#define MILLRACE_DECLARED(N) \
    millrace::Parameters<N>, millrace::Result<N>, millrace::Reasons<N>, millrace::Scratch<N>, millrace::Passes<N>

#define MILLRACE_RECORD_TYPE(N) millrace::RecordOf<millrace::Scratch<N>>::Type

// Declares the operator's code, defines the code that runs it, and begins its definition.
#define MILLRACE_CODE(Team, form, threads, teams, ...)                                                             \
    enum : int { millrace_last = MILLRACE_COUNT };                                                                  \
    enum : uint32_t { millrace_teams = teams, millrace_lanes = (threads) / (teams) };                               \
    static MILLRACE_DEVICE void millrace_operator_code(const MILLRACE_RECORD_TYPE(millrace_last) &,                 \
                                                       const millrace::Parameters<millrace_last> &,                 \
                                                       millrace::Result<millrace_last> &, const Team &);            \
    MILLRACE_ENTRY(millrace_last, Team, form, threads, teams)                                                       \
    MILLRACE_CODE_BEGIN(millrace_last, Team, __VA_ARGS__)
#define MILLRACE_CODE_BEGIN(N, Team, ...) MILLRACE_CODE_OF(N, Team, __VA_ARGS__)
#define MILLRACE_CODE_OF(N, Team, record, params, result, team)                                                    \
    static MILLRACE_DEVICE void millrace_operator_code([[maybe_unused]] const MILLRACE_RECORD_TYPE(N) &record,      \
                                                       [[maybe_unused]] const millrace::Parameters<N> &params,      \
                                                       [[maybe_unused]] millrace::Result<N> &result,                \
                                                       [[maybe_unused]] const Team &team)

// One thread per record. Blocks are small, so that a few records still use all multiprocessors.
#define MILLRACE_RECORD(record, params, result) \
    MILLRACE_CODE(millrace::OneLane, MILLRACE_THREAD, 64, 64, record, params, result, millrace_team)

#define MILLRACE_RECORD_WARP(record, params, result, team) \
    MILLRACE_CODE(MILLRACE_WARP_TEAM(4), MILLRACE_WARP, 128, 4, record, params, result, team)

#define MILLRACE_RECORD_BLOCK(threads, record, params, result, team) \
    MILLRACE_CODE(MILLRACE_BLOCK_TEAM(threads), MILLRACE_BLOCK, threads, 1, record, params, result, team)
