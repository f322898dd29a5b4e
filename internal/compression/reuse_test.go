package compression

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestAReusedDecompressorIsLikeANewOne decompresses valid and damaged bodies of several producers. It uses all
// encodings and changing limits, in random order. No outcome may depend on earlier bodies.
func TestAReusedDecompressorIsLikeANewOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type message struct {
		encoding Encoding
		body     []byte
	}
	var all []message
	for producer := range 3 {
		text := bytes.Repeat(fmt.Appendf(nil, "text of producer %d, ", producer), 1+random.IntN(3000))
		for _, w := range writers {
			all = append(all, message{w.encoding, w.write(text)})
		}
		all = append(all, message{Gzip, stream(func(w io.Writer) io.WriteCloser {
			z := stdgzip.NewWriter(w)
			z.Name, z.Comment, z.Extra = strings.Repeat("n", 600), strings.Repeat("c", 2000), []byte("extra")
			return z
		})(text)})
	}
	for _, m := range all[:len(all):len(all)] {
		for range 8 {
			body := bytes.Clone(m.body)
			switch at := random.IntN(len(body)); random.IntN(3) {
			case 0:
				body = body[:at]
			case 1:
				copy(body[at:], all[random.IntN(len(all))].body)
			default:
				body[at] ^= 1 << random.IntN(8)
			}
			all = append(all, message{m.encoding, body})
		}
	}
	var reused Decompressor
	var memory []byte
	outcome := func(d *Decompressor, dst []byte, m message, limit int64) (string, []byte) {
		out, err := d.Append(dst, m.encoding, m.body, limit)
		if fault := (*InvalidError)(nil); errors.As(err, &fault) {
			// The first fault that the zstd library finds depends on the capacity of dst.
			return fmt.Sprintf("%q, invalid at byte %d", out, fault.Offset), out
		}
		return fmt.Sprintf("%q, %T, %v", out, err, errors.Is(err, ErrTooLarge)), out
	}
	for n := range 8 * len(all) {
		m, limit := all[random.IntN(len(all))], int64(1)<<random.IntN(18)
		var got string
		got, memory = outcome(&reused, memory[:0], m, limit)
		if want, _ := outcome(new(Decompressor), nil, m, limit); got != want {
			t.Fatalf("step %d: %v with limit %d gives %.300s, a new decompressor %.300s", n, m.encoding, limit, got, want)
		}
	}
}
