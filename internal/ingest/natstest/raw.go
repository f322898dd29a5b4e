package natstest

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// RawInput is a message whose header is given as protocol bytes. Clients don't write arbitrary header bytes,
// but servers store them.
type RawInput struct {
	Subject string
	Header  string // includes the first line and the final empty line, if any; empty for no headers
	Payload []byte
}

// PublishRaw publishes messages unchanged to the server at address. It fails the test if the server refuses a
// message.
func PublishRaw(t testing.TB, address string, inputs ...RawInput) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(address, "nats://"), Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // the server has responded
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	text := []byte(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}` + "\r\n")
	for _, in := range inputs {
		if in.Header == "" {
			text = fmt.Appendf(text, "PUB %s %d\r\n", in.Subject, len(in.Payload))
		} else {
			text = fmt.Appendf(text, "HPUB %s %d %d\r\n%s", in.Subject, len(in.Header), len(in.Header)+len(in.Payload), in.Header)
		}
		text = append(append(text, in.Payload...), "\r\n"...)
	}
	if _, err := conn.Write(append(text, "PING\r\n"...)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "PONG"):
			return
		case err != nil, strings.HasPrefix(line, "-ERR"):
			t.Fatalf("publishing raw messages: %q, %v", line, err)
		}
	}
}
