package frame

import (
	"strings"
	"testing"
)

// TestNothingRemainsOfTheBufferBefore decompresses a damaged LZ4 frame that refers to bytes before its start. The decompressor
// must not read bytes of the previous frame.
func TestNothingRemainsOfTheBufferBefore(t *testing.T) {
	linked := func(block string) []byte {
		return []byte("\x04\x22\x4d\x18\x40\x40\xc0" + string(rune(len(block))) + "\x00\x00\x00" + block + "\x00\x00\x00\x00")
	}
	secret, text := linked("\xf0\x01secret of others"), strings.Repeat("?", 16)
	thief := linked("\x0b\x10\x00\x10x") // copies 15 bytes that precede the start of the output
	dst := []byte(text)
	for range 10 {
		if err := decompress(codecLZ4, dst, secret); err != nil || string(dst) != "secret of others" {
			t.Fatalf("%q, %v", dst, err)
		}
		clear(dst)
		if err := decompress(codecLZ4, dst, thief); err == nil {
			t.Fatalf("a frame that refers to bytes before its beginning gives %q", dst)
		}
		if strings.Contains(string(dst), "secret") {
			t.Fatalf("the buffer has %q", dst)
		}
	}
}
