"""Draw a folder of images: discs, squares and crosses, one folder per class, for training and for testing."""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw


def draw(shape: str) -> Image.Image:
    width, height = random.randint(28, 36), random.randint(28, 36)  # the recipe's options.size makes them equal
    image = Image.effect_noise((width, height), 40)
    size = random.randint(12, 18)
    left, top = random.randint(4, width - size - 4), random.randint(4, height - size - 4)
    right, bottom = left + size, top + size
    pen = ImageDraw.Draw(image)
    if shape == "disc":
        pen.ellipse((left, top, right, bottom), fill=230)
    elif shape == "square":
        pen.rectangle((left, top, right, bottom), fill=230)
    else:
        pen.line((left, top, right, bottom), fill=230, width=3)
        pen.line((left, bottom, right, top), fill=230, width=3)
    return image


def main(folder: Path) -> None:
    random.seed(0)
    for split, count in (("train", 60), ("test", 40)):
        for shape in ("cross", "disc", "square"):
            place = folder / split / shape
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(shape).save(place / f"{number:03}.png")
    print(f"wrote 300 images below {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "shapes"))
