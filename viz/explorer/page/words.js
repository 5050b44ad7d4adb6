// All words of the page, one object per language with the same keys: texts, and functions of numbers and names.

const WORDS = {
  en: {
    choice(free, choosing, nearlyEqual) {
      if (free === 0) return "One parent for each child: nothing to choose";
      if (nearlyEqual) return "Couplings nearly equal: hardly any routing";
      const children = counted(free, "child", "children");
      if (2 * choosing >= free && free > 1) return `${children} choose: ${thousands(choosing)} of them by more than half`;
      return `${choosing ? thousands(choosing) : "None"} of ${children} ${choosing > 1 ? "choose" : "chooses"} by more than half`;
    },
    lead: (children, parents, pictured) =>
      pictured
        ? `The network sees ${counted(children, "part", "parts")} in the image, the children. Each divides itself among ` +
          `${counted(parents, "class", "classes")}, the parents: the wider a line, the larger the share.`
        : `Each of ${counted(children, "child", "children")} divides itself among ${counted(parents, "parent", "parents")}: ` +
          `the wider a line, the larger the share.`,
  },
};

let words = WORDS.en;
