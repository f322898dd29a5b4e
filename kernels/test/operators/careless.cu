// careless.cu: accesses outside a record and its result. Only such records fail.
#include <millrace/operator.cuh>

MILLRACE_OPERATOR(careless, 1)
MILLRACE_RESULT(uint32_t, sum)
MILLRACE_RESULT_ARRAY(uint32_t, four, 4)
MILLRACE_RESULT_BYTES(text, 4, 0)

MILLRACE_RECORD(record, params, result) {
    uint32_t what = record.empty() ? 0 : record[0];
    result.sum = record.size();
    result.four[1] = 11;
    result.text.push('t');
    switch (what) {
    case 'r': result.sum += record[record.size()]; break;
    case 'R': result.sum += record[0xffffffffu]; break;
    case 'l': result.sum += record.load<uint32_t>(record.size() - 3); break;
    case 'L': result.sum += static_cast<uint32_t>(record.load<uint64_t>(0xfffffffcu)); break;
    case 'w': result.four[4] = 1; break;
    case 'W': result.four[0xffffffffu] = 1; break;
    case 't': for (int i = 0; i < 4; i++) result.text.push('x'); break;
    case 's': result.text.resize(5); break;
    case 'b': result.text[1] = 'x'; break;
    }
}
