package config

import (
	"fmt"

	"millrace/internal/compression"
	"millrace/internal/frame"
)

// parseFrames parses how messages hold records and how bodies are compressed, and checks settings that have no effect without that.
// Unknown words have already been reported.
func (c *Config) parseFrames() {
	c.framing, _ = frame.ParseFraming(c.Framing)
	c.decompress, _ = compression.Parse(c.Decompress)
	c.resultEncoding, _ = compression.ParseResult(c.ResultEncoding)
	if c.ArrowColumn != "" && c.framing != frame.Arrow && c.framing != frame.Auto {
		c.problemDo(Prefix+"_ARROW_COLUMN", fmt.Sprintf("has no effect, because %s_FRAMING is %q", Prefix, c.Framing),
			fmt.Sprintf("set %s_FRAMING=arrow or auto, or unset it", Prefix))
	}
	if c.framing != frame.None {
		return
	}
	if c.FrameRecords != frame.DefaultMaxRecords {
		c.warn("%s_FRAME_RECORDS has no effect: %s_FRAMING is none.", Prefix, Prefix)
	}
	if c.decompress == compression.None && c.FrameBytes != frame.DefaultMaxBytes {
		c.warn("%s_FRAME_BYTES has no effect: %s_FRAMING and %s_DECOMPRESS are none.", Prefix, Prefix, Prefix)
	}
}
