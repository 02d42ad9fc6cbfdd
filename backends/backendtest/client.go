package backendtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"sandbook/kernel/wire"
)

// client is the least a host needs to run commands through a guest. It does
// not trust what it reads: the suite is about what a hostile guest can do.
type client struct {
	conn io.ReadWriteCloser

	mu      sync.Mutex // guards writes and the fields below
	next    uint64
	replies map[uint64]chan wire.Reply
	streams map[uint32]*sink
	events  chan wire.Event // as many as a row can be interested in; the rest is dropped
	err     error
	done    chan struct{}

	welcome wire.Welcome
}

// sink takes what a guest sends on a stream.
type sink struct {
	data  []byte
	lines chan string // first output, if somebody waits for it
}

// maxOutput bounds what one command may print to the suite.
const maxOutput = 16 << 20

func connect(conn io.ReadWriteCloser) (*client, error) {
	c := &client{conn: conn, replies: map[uint64]chan wire.Reply{}, streams: map[uint32]*sink{}, events: make(chan wire.Event, 1024), done: make(chan struct{})}
	b, err := wire.AppendJSON(nil, wire.KindHello, 0, wire.Hello{Version: wire.Version})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(b); err != nil {
		return nil, fmt.Errorf("say hello: %w", err)
	}
	r := wire.NewReader(bufio.NewReader(conn))
	f, err := r.ReadMessage()
	if err != nil {
		return nil, fmt.Errorf("wait for welcome: %w", err)
	}
	if f.Kind != wire.KindWelcome {
		return nil, fmt.Errorf("the first frame is of kind %d", f.Kind)
	}
	if err := json.Unmarshal(f.Payload, &c.welcome); err != nil {
		return nil, err
	}
	if c.welcome.Error != "" {
		return nil, errors.New(c.welcome.Error)
	}
	go c.read(r)
	return c, nil
}

// read dispatches until the connection ends, which is its end too.
func (c *client) read(r *wire.Reader) {
	for {
		f, err := r.ReadMessage()
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			close(c.done)
			return
		}
		c.mu.Lock()
		switch f.Kind {
		case wire.KindEvent:
			if e, err := wire.ParseEvent(f.Payload); err == nil {
				select {
				case c.events <- e:
				default:
				}
			}
		case wire.KindReply:
			var rep wire.Reply
			if json.Unmarshal(f.Payload, &rep) == nil && c.replies[rep.ID] != nil {
				c.replies[rep.ID] <- rep
				delete(c.replies, rep.ID)
			}
		case wire.KindData:
			if s := c.streams[f.Stream]; s != nil && len(s.data) < maxOutput {
				s.data = append(s.data, f.Payload...)
				if s.lines != nil {
					select {
					case s.lines <- string(s.data):
					default:
					}
				}
				n := uint32(len(f.Payload)) //nolint:gosec // at most MaxMessage
				_, _ = c.conn.Write(wire.AppendFrame(nil, wire.Frame{
					Kind: wire.KindWindow, Stream: f.Stream,
					Payload: []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)},
				}))
			}
		default:
		}
		c.mu.Unlock()
	}
}

// result is how a command ended and what it printed.
type result struct {
	wire.CommandResult
	out, err string
}

// running is a command that has been started.
type running struct {
	c      *client
	number uint32
	reply  chan wire.Reply
	first  chan string
}

// start runs a command without waiting for it.
func (c *client) start(cmd wire.Command, keepStdin bool) (*running, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.next++
	id := c.next
	r := &running{c: c, number: uint32(2 * id), reply: make(chan wire.Reply, 1), first: make(chan string, 1)} //nolint:gosec // few
	c.replies[id] = r.reply
	c.streams[r.number] = &sink{lines: r.first}
	c.streams[r.number+1] = &sink{}
	b, err := wire.AppendJSON(nil, wire.KindRequest, r.number, wire.Request{ID: id, Op: wire.OpCommand, Cmd: &cmd})
	if err == nil && !keepStdin {
		b, err = wire.AppendJSON(b, wire.KindEnd, r.number, wire.End{})
	}
	if err == nil {
		_, err = c.conn.Write(b)
	}
	return r, err
}

// output waits for the first thing a command prints.
func (r *running) output(ctx context.Context) (string, error) {
	select {
	case s := <-r.first:
		return s, nil
	case <-r.c.done:
		return "", r.c.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// wait returns how the command ended.
func (r *running) wait(ctx context.Context) (result, error) {
	var res result
	var rep wire.Reply
	select {
	case rep = <-r.reply:
	case <-r.c.done:
		return res, fmt.Errorf("connection to the guest: %w", r.c.err)
	case <-ctx.Done():
		return res, ctx.Err()
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	res.out, res.err = string(r.c.streams[r.number].data), string(r.c.streams[r.number+1].data)
	delete(r.c.streams, r.number)
	delete(r.c.streams, r.number+1)
	if rep.Error != "" {
		return res, fmt.Errorf("%s: %s", rep.Code, rep.Error)
	}
	return res, json.Unmarshal(rep.Result, &res.CommandResult)
}

// run runs a command to its end.
func (c *client) run(ctx context.Context, argv ...string) (result, error) {
	r, err := c.start(wire.Command{Argv: argv, TimeoutMS: time.Minute.Milliseconds()}, false)
	if err != nil {
		return result{}, err
	}
	return r.wait(ctx)
}

// request sends a request without a stream and waits for its reply.
func (c *client) request(ctx context.Context, req wire.Request) (wire.Reply, error) {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return wire.Reply{}, c.err
	}
	c.next++
	req.ID = c.next
	ch := make(chan wire.Reply, 1)
	c.replies[req.ID] = ch
	b, err := wire.AppendJSON(nil, wire.KindRequest, 0, req)
	if err == nil {
		_, err = c.conn.Write(b)
	}
	c.mu.Unlock()
	if err != nil {
		return wire.Reply{}, err
	}
	select {
	case rep := <-ch:
		return rep, nil
	case <-c.done:
		return wire.Reply{}, c.err
	case <-ctx.Done():
		return wire.Reply{}, ctx.Err()
	}
}

// startKernel starts a kernel and waits until it is ready.
func (c *client) startKernel(ctx context.Context) error {
	rep, err := c.request(ctx, wire.Request{Op: wire.OpStart, Gen: 1, Start: &wire.StartKernel{Language: "python"}})
	if err == nil && rep.Error != "" {
		err = errors.New(rep.Error)
	}
	if err != nil {
		return err
	}
	_, err = c.event(ctx, func(e wire.Event) bool { return e.Type == wire.EventReady })
	return err
}

// runCell runs code in the kernel and waits for its end.
func (c *client) runCell(ctx context.Context, id, code string) (wire.RunEnd, error) {
	var end wire.RunEnd
	rep, err := c.request(ctx, wire.Request{Op: wire.OpRun, Run: &wire.Run{ID: id, Code: code}})
	if err == nil && rep.Error != "" {
		err = errors.New(rep.Error)
	}
	if err != nil {
		return end, err
	}
	e, err := c.event(ctx, func(e wire.Event) bool { return e.Type == wire.EventRunEnd && e.Run == id })
	if err != nil {
		return end, err
	}
	return end, json.Unmarshal(e.Content, &end)
}

// event waits for an event.
func (c *client) event(ctx context.Context, wanted func(wire.Event) bool) (wire.Event, error) {
	for {
		select {
		case e := <-c.events:
			if wanted(e) {
				return e, nil
			}
		case <-c.done:
			return wire.Event{}, fmt.Errorf("connection to the guest: %w", c.err)
		case <-ctx.Done():
			return wire.Event{}, ctx.Err()
		}
	}
}

// close ends the conversation and its reader.
func (c *client) close() {
	_ = c.conn.Close()
	<-c.done
}
