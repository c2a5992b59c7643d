// Ask every two seconds whether a round was added, and put the new page in place without moving the reader.
const refresh = async () => {
  const main = document.getElementById("main");
  try {
    const stamp = await (await fetch("stamp")).text();
    if (stamp !== main.dataset.stamp) {
      const text = await (await fetch("./")).text();
      const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
      for (const box of main.querySelectorAll("details[id]")) {
        const same = fresh.querySelector("#" + CSS.escape(box.id));
        if (same) same.open = box.open;
      }
      main.replaceWith(fresh);
    }
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost");
  }
  setTimeout(refresh, 2000);
};
setTimeout(refresh, 2000);
