// Asks for one portion of a long act after the other. Without it a button asks for one at a time.
"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  let isPaused = false;

  const show = (text, goes) => {
    by("run-state").textContent = text;
    by("run-go").hidden = goes;
    by("run-pause").hidden = !goes;
  };

  const portion = async (form) => {
    const body = new FormData(form);
    body.append("confirmed", "yes");
    const answer = await fetch(location.pathname, { method: "POST", body, redirect: "error" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.getElementById("desk-run")) {
      throw new Error("no such page");
    }
    by("content-main").replaceWith(page.getElementById("content-main"));
  };

  const portions = async () => {
    while (by("desk-run")) {
      // Whoever opens the address later does nothing by that.
      history.replaceState(null, "", by("desk-run").dataset.address);
      const form = by("desk-step");
      if (!form || form.dataset.go !== "yes" || isPaused) {
        return;
      }
      show("It goes on.", true);
      by("run-pause").onclick = () => {
        isPaused = true;
        by("run-state").textContent = "It ends with this portion.";
      };
      try {
        await portion(form);
      } catch (error) {
        show("It could not go on: look whether you are logged in, and whether the site answers.", false);
        return;
      }
    }
  };

  portions();
})();
