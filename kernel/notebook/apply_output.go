package notebook

import (
	"slices"
)

// MaxOutputs bounds the outputs of one run that the state keeps; further ones
// are in the log only.
const MaxOutputs = 500

func (s *folder) applyOutput(e Event) {
	switch b := e.Body.(type) {
	case StreamAppended:
		s.withRun(b.Run, func(r *Run) { r.print(b.Name, b.Text, b.Background) })
	case StreamOmitted:
		s.withRun(b.Run, func(r *Run) { r.omit(b) })
	case OutputAdded:
		s.withRun(b.Run, func(r *Run) {
			o := b.Output
			r.add(&o)
		})
	case OutputsCleared:
		s.withRun(b.Run, func(r *Run) {
			if b.Wait {
				r.ClearNext = true
			} else {
				r.Outputs, r.ClearNext = nil, false
			}
		})
	case OutputUpdated:
		for id, r := range s.Runs {
			if !slices.ContainsFunc(r.Outputs, func(o *Output) bool { return s.updates(b, r, o) }) {
				continue
			}
			s.withRun(id, func(r *Run) {
				r.Outputs = slices.Clone(r.Outputs)
				for i, o := range r.Outputs {
					if s.updates(b, r, o) {
						n := *o
						n.Data, n.Metadata = b.Data, b.Metadata
						r.Outputs[i] = &n
					}
				}
			})
		}
	}
}

// updates reports whether an update is for an output. A kernel reaches what it
// displayed itself under an id, and nothing else: not what an earlier kernel
// showed, nor what has no id.
func (s *folder) updates(b OutputUpdated, r *Run, o *Output) bool {
	return b.DisplayID != "" && o.DisplayID == b.DisplayID && r.Gen == s.Kernel.Gen && (o.Kind == DisplayOutput || o.Kind == ResultOutput)
}

// print adds text to the stream's output: the last one if it is of the same
// stream, else a new one.
func (r *Run) print(name, text string, background bool) {
	r.clearIfDue()
	n := len(r.Outputs)
	if n > 0 {
		if o := r.Outputs[n-1]; o.Kind == StreamOutput && o.Name == name && o.Background == background {
			c := *o
			t := o.Text.Append(text)
			c.Text = &t
			r.Outputs = slices.Clone(r.Outputs)
			r.Outputs[n-1] = &c
			return
		}
	}
	t := Text{}.Append(text)
	r.add(&Output{Kind: StreamOutput, Name: name, Background: background, Text: &t})
}

func (r *Run) omit(b StreamOmitted) {
	r.clearIfDue()
	for i := len(r.Outputs) - 1; i >= 0; i-- {
		if o := r.Outputs[i]; o.Kind == StreamOutput && o.Name == b.Name {
			c := *o
			t := o.Text.Omit(b.Bytes, b.Lines, b.Tail)
			c.Text = &t
			r.Outputs = slices.Clone(r.Outputs)
			r.Outputs[i] = &c
			return
		}
	}
	t := Text{}.Omit(b.Bytes, b.Lines, b.Tail)
	r.add(&Output{Kind: StreamOutput, Name: b.Name, Text: &t})
}

func (r *Run) add(o *Output) {
	r.clearIfDue()
	if len(r.Outputs) >= MaxOutputs {
		return
	}
	r.Outputs = append(slices.Clone(r.Outputs), o)
}

func (r *Run) clearIfDue() {
	if r.ClearNext {
		r.Outputs, r.ClearNext = nil, false
	}
}
