package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"sandbook/kernel/wire"
)

// runRequest is what the driver gets. The read ends of its two pipes stay here.
type runRequest struct {
	Type    string `json:"t"`
	Number  uint32 `json:"n"`
	Code    string `json:"code"`
	Name    string `json:"name"`
	Count   int    `json:"count"`
	Silent  bool   `json:"silent"`
	NoStdin bool   `json:"no_stdin"`
	At      int64  `json:"at"` // unix ns: an interrupt after it is for this run
}

// start takes a run, or says why not. It is called in the loop.
func (k *kernel) start(r wire.Run) (code wire.ErrorCode, sentence string) {
	switch {
	case k.dead != nil || k.over || k.reason != "":
		return wire.CodeNoKernel, "The kernel is ending."
	case k.run != nil:
		return wire.CodeBusy, "The kernel is running something else."
	}
	k.run = &run{Run: r}
	if k.isReady {
		k.begin()
	}
	return "", ""
}

// begin hands the run to the driver.
func (k *kernel) begin() {
	r := k.run
	now := time.Now()
	k.forget()
	k.number++
	r.number, r.started, r.from = k.number, true, now
	r.cpu = cpuTime(k.d.pid)
	if r.TimeoutMS > 0 {
		r.deadline = now.Add(time.Duration(min(r.TimeoutMS, int64(30*24*time.Hour/time.Millisecond))) * time.Millisecond)
	}
	k.runs[r.number] = newOutput(r.ID, r.OutputLimit, k.emit)
	var fds []int
	outR, outW, err := pipe()
	if err == nil {
		var errR, errW int
		if errR, errW, err = pipe(); err != nil {
			closeAll([]int{outR, outW})
		} else {
			fds = []int{outW, errW}
			k.watch(outR, r.number, "stdout")
			k.watch(errR, r.number, "stderr")
		}
	}
	// Without pipes the run still goes; what its processes print is then
	// attributed to the run before.
	k.spool.keep(wire.Event{Type: wire.EventRunStart, Run: r.ID, Gen: k.gen, At: now.UnixMilli()})
	k.d.request(runRequest{
		Type: "run", Number: r.number, Code: r.Code, Name: r.Name,
		Count: r.Count, Silent: r.Silent, NoStdin: r.NoStdin, At: time.Now().UnixNano(),
	}, fds...)
	r.Code = ""
}

// forget drops what is kept of runs long past.
func (k *kernel) forget() {
	if len(k.runs) >= keepRuns {
		for n, o := range k.runs {
			if n+keepRuns/2 < k.number {
				o.finish(time.Now())
				delete(k.runs, n)
			}
		}
	}
	if len(k.pipes) > 2*maxPipes {
		for _, p := range k.pipes {
			if p.number+maxPipes/2 < k.number {
				k.unwatch(p)
			}
		}
	}
}

// endRun ends the run as the driver says; the times are ours.
func (k *kernel) endRun(m driverMessage, now time.Time) {
	r := k.run
	o := k.runs[r.number]
	o.finish(now)
	end := wire.RunEnd{
		Status: wire.RunOK, EName: cutText(m.EName, 1000), EValue: cutText(m.EValue, 64<<10),
		WallMS: now.Sub(r.from).Milliseconds(), CPUMS: max(0, (cpuTime(k.d.pid) - r.cpu).Milliseconds()), Peak: peakMemory(k.d.pid),
	}
	if m.Status != "ok" {
		end.Status = wire.RunError
	}
	switch {
	case r.timedOut:
		end.Status = wire.RunTimeout
		end.Reason = fmt.Sprintf("The run was stopped at its time limit of %s; the kernel's variables are kept.", time.Duration(r.TimeoutMS)*time.Millisecond)
	case r.interrupted && end.Status == wire.RunError:
		end.Status = wire.RunInterrupted
		end.Reason = "The run was interrupted; the kernel's variables are kept."
	}
	k.closeRun(r, o, end)
}

// killedRun ends a run whose kernel is gone.
func (k *kernel) killedRun(r *run, died wire.Died, now time.Time) {
	end := wire.RunEnd{Status: wire.RunKilled, Reason: died.Reason, Peak: died.Peak}
	if r.timedOut && k.asked {
		end.Status = wire.RunTimeout
	}
	o := k.runs[r.number]
	if r.started {
		end.WallMS = now.Sub(r.from).Milliseconds()
		u := k.dead.usage
		end.CPUMS = max(0, (time.Duration(u.Utime.Nano()+u.Stime.Nano()) - r.cpu).Milliseconds())
	}
	k.closeRun(r, o, end)
}

func (k *kernel) closeRun(r *run, o *output, end wire.RunEnd) {
	k.run = nil
	if o != nil {
		o.over = true
	}
	k.emit(wire.Event{Type: wire.EventRunEnd, Run: r.ID, Content: encode(end)})
	k.after(r.ID)
}

// interrupt begins to stop the run. An empty id means whichever runs.
func (k *kernel) interrupt(id string) {
	r := k.run
	if r == nil || (id != "" && r.ID != id) {
		return // it is over
	}
	if !r.started {
		k.closeRun(r, nil, wire.RunEnd{Status: wire.RunInterrupted, Reason: "The run was interrupted before it began."})
		return
	}
	r.interrupted = true
	if r.stage == 0 {
		k.escalate(time.Now())
	}
}

// escalate takes the next step to stop the run: a signal to the kernel, to its
// process group, and in the end the kernel is killed.
func (k *kernel) escalate(now time.Time) {
	r := k.run
	r.stage++
	r.serial = 0 // nobody waits for input any more
	r.next = now.Add(k.grace)
	stage := "sigint"
	switch r.stage {
	case 1:
		_ = syscall.Kill(k.d.pid, syscall.SIGINT)
	case 2:
		stage = "sigint_group"
		_ = syscall.Kill(-k.d.pid, syscall.SIGINT)
	default:
		stage = "kill"
		r.next = time.Time{}
	}
	if o := k.runs[r.number]; o != nil {
		o.finish(now)
	}
	k.emit(wire.Event{Type: wire.EventInterrupt, Run: r.ID, Content: encode(wire.InterruptStage{Stage: stage})})
	if stage == "kill" {
		what := "being interrupted"
		if r.timedOut && !r.interrupted {
			what = "its time limit"
		}
		k.end(fmt.Sprintf("The code did not stop within %s of %s, so the kernel was ended; its variables are lost.", 2*k.grace, what), true)
	}
}

// input answers a pending input request.
func (k *kernel) input(id, value string) (wire.ErrorCode, string) {
	r := k.run
	if r == nil || r.ID != id || r.serial == 0 {
		return wire.CodeInvalid, "Nothing is waiting for input."
	}
	if len(value) > maxInput {
		return wire.CodeInvalid, fmt.Sprintf("The answer is longer than %d bytes.", maxInput)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(value))) //nolint:gosec // bounded above
	b = binary.BigEndian.AppendUint32(b, r.serial)
	if n, err := syscall.Write(k.d.input, append(b, value...)); err != nil || n != 8+len(value) {
		return wire.CodeFailed, "The kernel does not read its input."
	}
	r.serial = 0
	return "", ""
}

// maxInput bounds one answer: it must fit the pipe at once.
const maxInput = 32 << 10

// toolRequest is a question to the driver.
type toolRequest struct {
	Type  string `json:"t"`
	ID    uint64 `json:"id"`
	Code  string `json:"code,omitempty"`
	Pos   int    `json:"pos"`
	Level int    `json:"level"`
}

// ask puts a question to the driver.
func (k *kernel) ask(t toolRequest, reply func(code wire.ErrorCode, sentence string, result json.RawMessage)) {
	switch {
	case k.dead != nil || k.over || k.reason != "":
		reply(wire.CodeNoKernel, "The kernel is ending.", nil)
	case !k.isReady:
		reply(wire.CodeBusy, "The kernel is still starting.", nil)
	case k.run != nil:
		reply(wire.CodeBusy, "The kernel is running a cell.", nil)
	case len(k.questions) >= maxQuestions:
		reply(wire.CodeBusy, "The kernel has too many questions to answer.", nil)
	default:
		k.questions[t.ID] = &question{deadline: time.Now().Add(answerWithin), reply: func(result json.RawMessage, err string) {
			if err != "" {
				reply(wire.CodeFailed, err, nil)
				return
			}
			reply("", "", result)
		}}
		k.d.request(t)
	}
}

// encode makes JSON of one of our own types.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types always encode
	}
	return b
}
