package device_test

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/device/host"
)

// Example copies bytes to a device and back on one stream, and waits for that work to complete. Every device behaves in
// the same way.
func Example() {
	dev, err := host.Open(host.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = roundTrip(dev)
	fmt.Println("error:", errors.Join(err, dev.Close()))
	// Output:
	// token 7: "millrace"
	// error: <nil>
}

func roundTrip(dev device.Device) (err error) {
	stream, err := dev.NewStream("example")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	memory, err := dev.Alloc(8)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Free(memory)) }()
	buffer, err := dev.AllocHost(16)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.FreeHost(buffer)) }()
	in, out := buffer.Slice(0, 8), buffer.Slice(8, 8)
	copy(in.Bytes(), "millrace")

	// The calls return at once. The device carries out the work of one stream in order.
	err = dev.Enqueue([]device.Command{
		{Kind: device.DoCopyIn, Stream: stream, Memory: memory, Host: in},
		{Kind: device.DoCopyOut, Stream: stream, Host: out, Memory: memory},
		{Kind: device.DoNotify, Stream: stream, Value: 7},
	})
	if err != nil {
		return err
	}
	// Until the token arrives, the buffers belong to the device.
	token, err := dev.WaitCompletion(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("token %d: %q\n", token, out.Bytes())
	return nil
}
