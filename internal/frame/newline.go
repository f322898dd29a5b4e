package frame

import "bytes"

// splitLines indexes the lines of body. LF ends a line, and one CR directly before it is dropped. The last LF is optional:
// nothing after it is no line.
func (f *Frame) splitLines(body []byte) error {
	for pos := 0; pos < len(body); {
		if f.full() {
			return f.tooMany(pos)
		}
		n := bytes.IndexByte(body[pos:], '\n')
		if n < 0 {
			f.add(pos, len(body))
			break
		}
		end := pos + n
		if n > 0 && body[end-1] == '\r' {
			f.add(pos, end-1)
		} else {
			f.add(pos, end)
		}
		pos = end + 1
	}
	f.endSegment(body, false)
	return nil
}
