// Says below each answer whether it was begun again, and when it is complete.
document.addEventListener("mq-chunk", ({ target, detail: { kind, attempt, outcome } }) => {
  const note = target.closest(".answer").querySelector("[role=status]");
  if (kind === "restart") note.textContent = `Begun again, attempt ${attempt}.`;
  if (kind === "end") note.textContent += outcome === "handled" ? " Complete." : " Sorry, that is all.";
});
