package draw

import (
	"bytes"
	"fmt"
	"html"
)

// Picture is one of the pictures of a page.
type Picture struct {
	ID    string // in the page: key-1, connection-1, way-1
	Group string // the heading of the list that names it
	Title string
	SVG   []byte
}

// The style and the script of a page.
const (
	pageStyle = `body{font:14px "DejaVu Sans",Helvetica,Arial,sans-serif;margin:0;display:flex;height:100vh;color:#1b1f24}
nav{width:290px;overflow:auto;border-right:1px solid #d0d7de;padding:12px;box-sizing:border-box;flex:none}
nav h2{font-size:13px;color:#57606a;margin:14px 0 4px}
nav a{display:block;padding:3px 6px;color:#2f6fd0;text-decoration:none;border-radius:4px;overflow-wrap:anywhere}
nav a.chosen{background:#cfe3ff;color:#1b1f24}
nav a.has-bad{border-left:4px solid #cf222e}
nav a.has-loss{border-left:4px solid #b7791f}
nav a[hidden]{display:none}
main{overflow:auto;flex:auto;padding:12px}
section{display:none}section.chosen{display:block}
section svg{max-width:100%;height:auto}
input{width:100%;box-sizing:border-box;padding:4px}
nav b{overflow-wrap:anywhere}
.zoom{position:sticky;top:0;text-align:right}`
	pageScript = `"use strict";
const links=[...document.querySelectorAll("nav a")],sections=[...document.querySelectorAll("section")];
let scale=0; // 0: as wide as the window allows
function choose(id){
  const wrong=links.find(l=>l.classList.contains("has-bad"))||links.find(l=>l.classList.contains("has-loss"));
  if(!document.getElementById(id))id=wrong?wrong.getAttribute("href").slice(1):sections.length?sections[0].id:"";
  for(const l of links)l.classList.toggle("chosen",l.getAttribute("href")==="#"+id);
  for(const s of sections)s.classList.toggle("chosen",s.id===id);
}
function zoom(f){
  const all=[...document.querySelectorAll("section svg")];
  if(!scale){const s=document.querySelector("section.chosen svg");scale=s.getBoundingClientRect().width/s.viewBox.baseVal.width;}
  scale=Math.min(4,Math.max(0.25,scale*f));
  for(const s of all){s.style.maxWidth="none";s.style.width=s.viewBox.baseVal.width*scale+"px";}
}
document.getElementById("filter").addEventListener("input",e=>{
  const t=e.target.value.toLowerCase();
  for(const l of links)l.hidden=!l.textContent.toLowerCase().includes(t);
});
document.getElementById("in").addEventListener("click",()=>zoom(1.25));
document.getElementById("out").addEventListener("click",()=>zoom(0.8));
window.addEventListener("hashchange",()=>choose(location.hash.slice(1)));
choose(location.hash.slice(1));`
)

// Page returns an HTML page that shows the pictures, one at a time. It opens on the first bad
// block, or else on the first loss. The page loads nothing from elsewhere.
func Page(title string, pictures []Picture) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(&b, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")
	fmt.Fprintf(&b, "<style>%s</style></head><body>\n<nav><b>%s</b><p><input id=\"filter\" placeholder=\"filter\" aria-label=\"filter\"></p>\n", pageStyle, html.EscapeString(title))
	group := ""
	for _, p := range pictures {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "<h2>%s</h2>\n", html.EscapeString(group))
		}
		class := ""
		switch {
		case bytes.Contains(p.SVG, []byte(`id="bad-block"`)):
			class = ` class="has-bad"`
		case bytes.Contains(p.SVG, []byte(`class="lost"`)):
			class = ` class="has-loss"`
		}
		fmt.Fprintf(&b, "<a href=\"#%s\"%s>%s</a>\n", p.ID, class, html.EscapeString(p.Title))
	}
	b.WriteString("</nav>\n<main><p class=\"zoom\"><button id=\"out\">−</button> <button id=\"in\">+</button></p>\n")
	for _, p := range pictures {
		fmt.Fprintf(&b, "<section id=\"%s\">\n%s</section>\n", p.ID, owned(p.SVG, p.ID))
	}
	fmt.Fprintf(&b, "</main>\n<script>%s</script>\n</body></html>\n", pageScript)
	return b.Bytes()
}

// owned returns a picture whose parts have names of their own in a page. Names of a section that is hidden
// refer to nothing: arrows would have no heads.
func owned(svg []byte, id string) []byte {
	for _, name := range []string{"arrow-", "ciphertext", "bad-block"} {
		svg = bytes.ReplaceAll(svg, []byte(`id="`+name), []byte(`id="`+id+"-"+name))
		svg = bytes.ReplaceAll(svg, []byte("url(#"+name), []byte("url(#"+id+"-"+name))
	}
	return svg
}
