package render

import (
	"container/list"
	"crypto/sha256"
	"strconv"
	"sync"
)

// A unit of work is about a tenth of a microsecond of one core, as far as it can
// be told from a text before, or by counting while, it is formatted.
const (
	// PageWork is enough for a page, about three seconds; what is over it is
	// shown plain.
	PageWork = 30_000_000

	textWork   = 5_000_000 // of one text
	codeByte   = 60        // of code, by byte
	markupByte = 3         // of HTML and JSON
	proseByte  = 5         // of Markdown
	proseText  = 1000      // of a Markdown text, however short
)

// Work bounds what formatting the texts of one page may take. It is for one
// goroutine. A nil *Work has no bound.
type Work struct {
	left int64
	stop func() bool
}

// NewWork allows so many units, until stop, which may be nil, reports that
// nobody waits for the page any more.
func NewWork(units int64, stop func() bool) *Work { return &Work{left: units, stop: stop} }

// take spends units and reports whether there were as many.
func (w *Work) take(units int64) bool {
	if w == nil {
		return true
	}
	if w.stop != nil && w.stop() {
		w.left = 0
	}
	if units > w.left {
		return false
	}
	w.left -= units
	return true
}

// The sentences below a text that is not formatted, for Options.Say.
const (
	tooLong   = "Shown as plain text because it is too long to format."
	tooCostly = "Shown as plain text because it is nested too deeply, or takes too long to format."
	pageFull  = "Shown as plain text because this page has too much to format at one time. Load it again to go on."
)

func (o Options) say(sentence string) string {
	if o.Say == nil {
		return sentence
	}
	return o.Say(sentence)
}

// plain shows text as it is, and why.
func (o Options) plain(src, why string) HTML {
	return plainBlock(src) + `<p class="note">` + Visible(o.say(why)) + "</p>"
}

// Cache keeps what was formatted, so that a page that is loaded again, or by
// somebody else, costs nothing. When it is full, what was used least recently
// goes. It is safe for concurrent use; a nil *Cache keeps nothing.
type Cache struct {
	most int

	mu    sync.Mutex
	size  int
	byKey map[cacheKey]*list.Element
	order *list.List // of *cached; the most recent first
}

type cacheKey [sha256.Size]byte

type cached struct {
	key   cacheKey
	value any
	size  int
}

const cacheEntry = 250 // bytes an entry takes besides its markup, about

// NewCache makes a cache of at most so many bytes.
func NewCache(most int) *Cache {
	return &Cache{most: most, byKey: map[cacheKey]*list.Element{}, order: list.New()}
}

func (c *Cache) find(key cacheKey) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, found := c.byKey[key]
	if !found {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).value
}

func (c *Cache) keep(key cacheKey, value any, size int) {
	size += cacheEntry
	if size > c.most/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, found := c.byKey[key]; found {
		return
	}
	c.byKey[key] = c.order.PushFront(&cached{key, value, size})
	c.size += size
	for c.size > c.most {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.byKey, last.key)
		c.size -= last.size
	}
}

// key names a result by all it depends on. Lengths keep the parts apart.
func (o Options) key(kind, src string) cacheKey {
	h := sha256.New()
	for _, part := range []string{kind, o.FilesBase, o.Scope, o.say(tooCostly), src} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":"))
		h.Write([]byte(part))
	}
	return cacheKey(h.Sum(nil))
}

// once makes a T of src unless that was done before, for units of the page's
// work. full says that the page has no such work left, or ran out of it on the
// way.
func once[T interface{ size() int }](o Options, kind, src string, units int64, format func() (v T, full bool)) (v T, full bool) {
	var key cacheKey
	if o.Cache != nil {
		key = o.key(kind, src)
		if v, found := o.Cache.find(key).(T); found {
			return v, false
		}
	}
	if !o.Work.take(units) {
		return v, true
	}
	if v, full = format(); !full && o.Cache != nil {
		o.Cache.keep(key, v, v.size())
	}
	return v, full
}

func (h HTML) size() int { return len(h) }

// cleaned is what sanitize makes of a text.
type cleaned struct {
	html HTML
	ok   bool
}

func (c cleaned) size() int { return len(c.html) }

func (v verdict) size() int { return 64 * len(v.hosts) }

// inspect is inspect within the page's work.
func (o Options) inspect(src string) (found verdict, full bool) {
	return once(o, "inspect", src, int64(len(src))*markupByte, func() (verdict, bool) { return inspect(src), false })
}

// clean is sanitize of a kernel's HTML within the page's work.
func (o Options) clean(src string) (c cleaned, full bool) {
	return once(o, "html", src, int64(len(src))*markupByte, func() (cleaned, bool) {
		h, ok := sanitize(src, fromOutput, o)
		return cleaned{h, ok}, false
	})
}

// Code is Code within the page's work; what is over it is not coloured.
func (o Options) Code(src, language string) HTML {
	h, full := once(o, "code "+language, src, codeWork(src), func() (HTML, bool) { return Code(src, language), false })
	if full {
		return Code(src, "")
	}
	return h
}

// codeWork is what colouring takes: longer code is not coloured at all.
func codeWork(src string) int64 {
	if len(src) > maxHighlight {
		return int64(len(src))
	}
	return int64(len(src)) * codeByte
}
