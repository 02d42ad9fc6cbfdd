package pages

import (
	"fmt"
	"strings"
	"time"
)

// Lang is the language of a page.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

// ChooseLang takes the language of ?lang=, the lang cookie or Accept-Language,
// in this order.
func ChooseLang(query, cookie, accept string) Lang {
	for _, s := range []string{query, cookie} {
		switch Lang(s) {
		case English, Chinese:
			return Lang(s)
		}
	}
	for part := range strings.SplitSeq(accept, ",") {
		tag, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		base, _, _ := strings.Cut(strings.ToLower(tag), "-")
		switch Lang(base) {
		case English, Chinese:
			return Lang(base)
		}
	}
	return English
}

// T gives the string in the language. The English one is the key; what the
// table does not have stays English.
func (l Lang) T(en string, args ...any) string {
	s := en
	if l == Chinese {
		if zh, ok := zh[en]; ok {
			s = zh
		}
	}
	if len(args) == 0 {
		return s
	}
	return fmt.Sprintf(s, args...)
}

// N is T with a form for one and one for any other number, which comes first
// among the arguments.
func (l Lang) N(n int, one, many string, args ...any) string {
	s := many
	if n == 1 {
		s = one
	}
	return l.T(s, append([]any{n}, args...)...)
}

// HTML is the lang attribute.
func (l Lang) HTML() string {
	if l == Chinese {
		return "zh-Hans"
	}
	return "en"
}

// Duration says how long something took: 12 ms, 1.2 s, 3 min 20 s, 2 h 5 min.
func (l Lang) Duration(d time.Duration) string {
	switch {
	case d < 0:
		return l.T("%d ms", 0)
	case d < 100*time.Millisecond:
		return l.T("%d ms", d.Milliseconds())
	case d < time.Minute:
		return l.T("%s s", fmt.Sprintf("%.1f", d.Seconds()))
	case d < time.Hour:
		return l.T("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return l.T("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// Size says how many bytes: 12 B, 3.1 kB, 211 MB. Units are decimal.
func Size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	f, i := float64(n), 0
	for f >= 999.5 && i < len(units)-1 {
		f /= 1000
		i++
	}
	if i == 0 || f >= 99.95 || f == float64(int64(f)) {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// Memory says how much memory, in the unit limits are given in: 84 MiB.
func Memory(n int64) string { return Count((n+1<<19)>>20) + " MiB" }

// Count writes a number with thousands apart: 48,120.
func Count(n int64) string {
	s := fmt.Sprint(n)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}

// Ordinal is 1st, 2nd, 3rd, 4th; in Chinese the number alone.
func (l Lang) Ordinal(n int64) string {
	if l == Chinese {
		return fmt.Sprint(n)
	}
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

// Ago says how long before now something was.
func (l Lang) Ago(at, now time.Time) string {
	d := now.Sub(at)
	switch {
	case at.IsZero():
		return ""
	case d < time.Minute:
		return l.T("just now")
	case d < time.Hour:
		return l.N(int(d.Minutes()), "%d minute ago", "%d minutes ago")
	case d < 24*time.Hour:
		return l.N(int(d.Hours()), "%d hour ago", "%d hours ago")
	case d < 30*24*time.Hour:
		return l.N(int(d.Hours()/24), "%d day ago", "%d days ago")
	}
	if l == Chinese {
		return at.Format("2006年1月2日")
	}
	return at.Format("2 January 2006")
}
