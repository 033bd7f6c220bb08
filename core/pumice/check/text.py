"""A text that models predict: plain English prose, written for this purpose and published nowhere else."""

_WRAPPED = """\
Rivers begin in high places. Rain and melting snow collect in small channels, the channels join, and by the time the
water reaches the plain it has cut a valley many miles wide. A young river runs straight and fast over rocks; an old
one wanders. On flat ground the current is slower on the inside of a bend and faster on the outside, so the outer bank
is worn away while sand settles on the inner one. Over the years the bend grows until the river breaks through its
neck and leaves a curved lake behind.

People have always settled beside rivers. They gave water to drink, fish to eat, and an easy road for heavy goods at a
time when there were no other roads. The first cities of Egypt and Mesopotamia depended on the yearly flood, which
covered the fields with fresh mud. When the flood failed, there was famine; when it was too high, houses and animals
were carried away. To measure the water, priests cut marks into stone, and the taxes of the following year were fixed
by the highest mark that the water had reached.

Today most large rivers are controlled by dams. A dam stores water for the dry months, protects the towns below it,
and drives turbines that produce electricity without smoke. It also has a price. Fish can no longer swim to the places
where they lay their eggs, and the mud that once made the fields rich sinks to the bottom of the lake behind the wall.
Engineers in several countries have begun to remove old dams that are no longer needed, and within a few years salmon
have returned to streams in which nobody had seen them for a century.

"How long does it take for water to get from here to the sea?" asked the girl. Her grandfather looked down at the
river and thought for a while. "That depends on the season," he said. "In the spring, when the snow melts, about two
weeks. In the summer it may take more than a month, because there is less water and it is in no hurry." She threw a
small piece of wood into the water and watched it turn around slowly, touch the bank, and move on. "Then it will
arrive on my birthday," she said.

The amount of water that flows past a point is called the discharge, and it is measured in cubic metres per second. It
is found by multiplying the width of the river, its mean depth and the speed of the water. For example, a river that
is 100 metres wide and 4 metres deep, and that moves at 2 metres per second, has a discharge of 800 cubic metres per
second. The Amazon carries more than 200,000 cubic metres per second into the Atlantic Ocean, which is about one fifth
of all the river water in the world.
"""
TEXT = "\n\n".join(paragraph.replace("\n", " ") for paragraph in _WRAPPED.strip().split("\n\n"))
