"""JavaScript that runs in pages to find elements, focus and scroll position."""

from __future__ import annotations

SCALE_SCRIPT = "() => window.visualViewport.scale"
POSITION_SCRIPT = (
    "() => [Math.round(scrollY), Math.round(scrollY + innerHeight), document.documentElement.scrollHeight]"
)
MENU_SCRIPT = """([x, y]) => {
    const view = window.visualViewport;
    x = x / view.scale + view.offsetLeft;
    y = y / view.scale + view.offsetTop;
    const about = {bubbles: true, cancelable: true, composed: true, clientX: x, clientY: y, button: 0};
    const target = document.elementFromPoint(x, y);
    if (target) target.dispatchEvent(new PointerEvent('contextmenu', {...about, pointerType: 'touch'}));
}"""
EDITABLE_SCRIPT = """() => {
    let e = document.activeElement;
    while (e && e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement;
    return !!e && (e.isContentEditable || ['TEXTAREA', 'IFRAME'].includes(e.tagName) || (e.tagName === 'INPUT'
        && !['button', 'submit', 'checkbox', 'radio', 'file', 'image', 'reset', 'range'].includes(e.type)));
}"""
ELEMENTS_SCRIPT = """([most, longest]) => {
    const roles = {A: 'link', BUTTON: 'button', SELECT: 'combobox', TEXTAREA: 'textbox', IMG: 'image',
        SUMMARY: 'button', H1: 'heading', H2: 'heading', H3: 'heading', H4: 'heading', LI: 'listitem',
        OPTION: 'option'};
    const inputs = {button: 'button', submit: 'button', reset: 'button', checkbox: 'checkbox', radio: 'radio',
        range: 'slider', file: 'button', image: 'button'};
    const found = [], view = window.visualViewport;
    const shown = (n, offset) => Math.round((n - offset) * view.scale);
    const own = e => [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(' ').trim();
    const visit = (root, left, top) => {
        for (const e of root.querySelectorAll('*')) {
            if (found.length >= most) return;
            if (e.shadowRoot) visit(e.shadowRoot, left, top);
            if (e.tagName === 'IFRAME') {
                const box = e.getBoundingClientRect();
                try { visit(e.contentDocument, left + box.left, top + box.top); } catch (error) {}
            }
            const tag = e.tagName, input = tag === 'INPUT';
            const editable = e.isContentEditable || tag === 'TEXTAREA' || (input && !inputs[e.type]);
            const role = e.getAttribute('role') || roles[tag] || (input ? inputs[e.type] || 'textbox' : 'text');
            const clickable = ['link', 'button', 'checkbox', 'radio', 'combobox', 'option', 'tab', 'menuitem', 'switch',
                'slider'].includes(role) || editable || !!e.onclick || e.hasAttribute('onclick') || tag === 'LABEL';
            const label = (e.labels && e.labels[0] && e.labels[0].innerText) || '';
            const chosen = tag === 'SELECT' && e.selectedOptions[0] ? e.selectedOptions[0].text : '';
            const text = e.getAttribute('aria-label') || (input && inputs[e.type] === 'button' && e.value)
                || (editable && e.value) || chosen || e.getAttribute('alt') || (clickable ? e.innerText : own(e))
                || label || e.getAttribute('placeholder') || e.getAttribute('title') || '';
            if (!clickable && !String(text).trim()) continue;
            const box = e.getBoundingClientRect();
            const style = getComputedStyle(e);
            if (box.width < 1 || box.height < 1 || style.visibility === 'hidden' || style.opacity === '0') continue;
            const l = box.left + left, t = box.top + top;
            const bounds = [shown(l, view.offsetLeft), shown(t, view.offsetTop),
                shown(l + box.width, view.offsetLeft), shown(t + box.height, view.offsetTop)];
            if (bounds[0] >= view.width * view.scale || bounds[1] >= view.height * view.scale
                || bounds[2] <= 0 || bounds[3] <= 0) continue;
            const words = String(text).replace(/\\s+/g, ' ').trim().slice(0, longest);
            found.push({role: String(role).slice(0, 60), text: words, bounds, clickable: !!clickable,
                editable: !!editable, focused: document.activeElement === e, checked: e.checked === true});
        }
    };
    visit(document, 0, 0);
    return found;
}"""
