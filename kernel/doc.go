// Package kernel runs live notebooks. One goroutine, the owner, holds all
// state of a session; everybody else talks to it through Session.Do, Subscribe
// and the queries. It knows no SQL, no HTTP and no concrete backend: the log,
// the blobs and the backends come in as interfaces.
//
// # The write path
//
// Session.Do is the only way to change a notebook: policy, Decide, append
// (durable), Apply, publish, react. What a guest reports goes the same way, as
// Report ops of the server. An event is published only after it is durable,
// and a guest's event is acknowledged only then, together with the cursor that
// says so: after a crash the guest sends again exactly what is missing.
//
// # Goroutines
//
// The Manager owns the sessions. Each session has its owner; while a sandbox
// lives there are a reader and a writer for its connection and a waiter for its
// end; starting a kernel and copying files are goroutines that post their
// result to the owner. All are waited for in Manager.Close. Sandboxes are not
// ended by it: they outlive the server and are attached to by the next one.
package kernel
