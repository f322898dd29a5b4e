package device

import "fmt"

// CommandKind identifies the Stream method that a Command calls.
type CommandKind uint8

// The command kinds. Each comment names the fields of Command that the kind uses in addition to Stream.
const (
	DoCopyIn  CommandKind = iota + 1 // Memory, Host
	DoCopyOut                        // Host, Memory
	DoFill                           // Memory, Value
	DoLaunch                         // Kernel, Args
	DoRecord                         // Event
	DoWait                           // Event
	DoNotify                         // Value
)

func (k CommandKind) String() string {
	return [...]string{"no command", "copy in", "copy out", "fill", "launch", "record", "wait", "notify"}[k]
}

// Command is a call of one of Stream's methods as a value, for Device.Enqueue.
type Command struct {
	Kind   CommandKind
	Stream Stream
	Host   HostBuffer
	Memory Memory
	Event  Event
	Kernel Kernel
	Args   *LaunchArgs // read during the call
	Value  uint64      // token of a notification, or byte of a fill
}

// EnqueueEach implements Device.Enqueue with one call per command, for devices on which calls are cheap.
func EnqueueEach(commands []Command) error {
	for i := range commands {
		if err := commands[i].enqueue(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Command) enqueue() error {
	switch s := c.Stream; c.Kind {
	case DoCopyIn:
		return s.CopyIn(c.Memory, c.Host)
	case DoCopyOut:
		return s.CopyOut(c.Host, c.Memory)
	case DoFill:
		return s.Fill(c.Memory, byte(c.Value))
	case DoLaunch:
		return s.Launch(c.Kernel, *c.Args)
	case DoRecord:
		return s.Record(c.Event)
	case DoWait:
		return s.Wait(c.Event)
	case DoNotify:
		return s.Notify(c.Value)
	}
	panic(fmt.Sprintf("device: there is no command %d", c.Kind))
}
