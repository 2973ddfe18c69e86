// What a visitor cannot see or use of a page, as sentences, by what its heading must say.
pattern => {
    const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true})
    const content = document.querySelector("#content-main")
    const found = []

    // Colours are drawn, because browsers write them in many ways.
    const painted = colours => {
        paint.clearRect(0, 0, 1, 1)
        for (const colour of colours) {
            // What is no colour, such as none, would leave the one before.
            paint.fillStyle = "transparent"
            paint.fillStyle = colour
            paint.fillRect(0, 0, 1, 1)
        }
        return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3)
    }
    const behind = element => {
        const colours = []
        for (let at = element; at; at = at.parentElement) colours.unshift(getComputedStyle(at).backgroundColor)
        return ["canvas", ...colours]
    }
    const luminance = colours => {
        const [red, green, blue] = painted(colours).map(part => part / 255)
            .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
    const contrast = (colour, element) => {
        const below = behind(element)
        const [dark, light] = [luminance(below), luminance([...below, colour])].sort((a, b) => a - b)
        return (light + 0.05) / (dark + 0.05)
    }
    const expectContrast = (what, colour, element) => {
        const ratio = contrast(colour, element)
        if (!(ratio >= 3)) found.push(`${what}: a contrast of ${ratio.toFixed(1)}: ${element.outerHTML.slice(0, 120)}`)
    }
    const shown = selector => [...content.querySelectorAll(selector)].filter(element => element.checkVisibility())
    const isClear = element => {
        const {left, right, top, bottom} = element.getBoundingClientRect()
        const on = document.elementFromPoint((left + right) / 2, (top + bottom) / 2)
        return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight
            && on !== null && (element.contains(on) || on.contains(element))
    }

    // The heading stands there once, and is seen before anything is scrolled.
    const says = element => new RegExp(pattern, "s").test(element.textContent)
    const headings = [...document.querySelectorAll("h1, h2, h3")].filter(element => element.checkVisibility() && says(element))
    if (headings.length !== 1 || !content.contains(headings[0]) || !isClear(headings[0])) {
        found.push(`the heading is seen ${headings.length} times: ${pattern}`)
    }
    for (const heading of headings) expectContrast("the heading", getComputedStyle(heading).color, heading)

    for (const button of shown("button, .button, .mq-button, input[type=submit]")) {
        button.scrollIntoView({block: "center", inline: "nearest", behavior: "instant"})
        const name = button.textContent.trim() || button.value
        if (button.scrollWidth > button.clientWidth || button.scrollHeight > button.clientHeight) {
            found.push(`the text of a button is cut: ${name}`)
        }
        if (!isClear(button)) found.push(`a button is cut or covered: ${name}`)
        expectContrast(`the button ${name}`, getComputedStyle(button).color, button)
    }
    for (const input of shown("input:not([type=checkbox], [type=radio], [type=submit]), select, textarea")) {
        const {borderTopStyle, borderTopWidth, borderTopColor} = getComputedStyle(input)
        if (borderTopStyle === "none" || parseFloat(borderTopWidth) < 1) found.push(`an input has no border: ${input.name}`)
        expectContrast("the border of an input", borderTopColor, input.parentElement)
    }
    for (const line of shown(".mq-spark polyline")) expectContrast("a sparkline", getComputedStyle(line).stroke, line)
    for (const table of shown(".mq-table")) {
        const cell = table.querySelector("tbody th, tbody td")
        if (cell && parseFloat(getComputedStyle(cell).borderBottomWidth) < 0.5) found.push("a table has no lines")
    }
    return found
}
