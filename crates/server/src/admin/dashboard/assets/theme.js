// Dark or light: what the system asks for, until the button says otherwise. It runs before anything
// is drawn, so that the page never flashes in the wrong one.
const THEMES = ["auto", "light", "dark"];

function storedTheme() {
  try {
    const theme = localStorage.getItem("theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  dispatchEvent(new Event("themechange"));
}

document.documentElement.dataset.theme = storedTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  dispatchEvent(new Event("themechange"));
});
addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const label = () => {
    button.textContent = `Theme: ${document.documentElement.dataset.theme}`;
  };
  label();
  button.addEventListener("click", () => {
    const now = THEMES.indexOf(document.documentElement.dataset.theme);
    setTheme(THEMES[(now + 1) % THEMES.length]);
    label();
  });
});
