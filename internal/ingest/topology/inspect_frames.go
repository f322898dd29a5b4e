package topology

import (
	"fmt"

	"millrace/internal/ingest/finding"
)

// limitOfResults returns the size limit of messages with results. It is the smaller limit of the result stream and the server, or
// the server's limit if the stream's is unknown.
func (i *inspection) limitOfResults() limit {
	if s, err := i.js.Stream(i.ctx, i.l.ResultStream); err == nil {
		if maximum := int64(s.CachedInfo().Config.MaxMsgSize); maximum > 0 && maximum < i.maxPayload {
			return limit{maximum, "stream " + i.l.ResultStream, "raise max_msg_size of stream " + i.l.ResultStream}
		}
	}
	return limitOfServer(i.maxPayload)
}

func limitOfServer(maxPayload int64) limit {
	return limit{maxPayload, "the server", "raise the server's max_payload"}
}

// resultHeaders is the assumed size of a result's headers in bytes.
const resultHeaders = 1024

// frames compares the limits of frames with the size of a batch, and with the message size limits of the server and the result
// stream.
func (i serverInspector) frames() {
	f, what := i.use.Frames, "frames"
	if f.none() {
		return
	}
	worst := finding.OK
	say := func(l finding.Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if int64(f.Bytes) < i.maxPayload {
		say(finding.Warning, fmt.Sprintf("the server takes messages of %d bytes, and MILLRACE_FRAME_BYTES is %d", i.maxPayload, f.Bytes),
			fmt.Sprintf("larger ones that are framed or compressed go to the dead-letter subject; raise MILLRACE_FRAME_BYTES to at least %d", i.maxPayload))
	}
	room := int(i.results.bytes) - resultHeaders
	records := f.fit(room)
	if f.Framed && records == 0 {
		say(finding.Warning, fmt.Sprintf("the result of one record may have %d bytes, and %s takes messages of %d", f.Result, i.results.of, i.results.bytes),
			fmt.Sprintf("a record with a larger result goes to the dead-letter subject; %s, or use MILLRACE_RESULT_FORMAT=binary or smaller operators", i.results.raise))
	}
	if worst != finding.OK {
		return
	}
	found := fmt.Sprintf("a record may have up to %d bytes (MILLRACE_BATCH_BYTES)", min(i.use.BatchBytes, f.Bytes))
	if f.Framed {
		found = fmt.Sprintf("up to %d records and %d bytes per message; %s", f.Records, f.Bytes, found)
	}
	if f.Framed && records < f.Records {
		found += fmt.Sprintf("; the result of more than about %d records comes in parts, because %s takes messages of %d bytes", records, i.results.of, i.results.bytes)
	}
	i.say(finding.OK, what, found, "")
}
