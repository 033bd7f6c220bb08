/** A component that is drawn again only when its properties changed. */

import { Component, h, type ComponentType, type FunctionComponent } from "preact";

export function memo<P extends object>(View: FunctionComponent<P>, isSame: (a: P, b: P) => boolean = shallow): ComponentType<P> {
  return class extends Component<P> {
    shouldComponentUpdate(next: P): boolean {
      return !isSame(this.props as P, next);
    }

    render() {
      return h(View as FunctionComponent<any>, this.props as any);
    }
  };
}

function shallow(a: object, b: object): boolean {
  const [before, after] = [Object.entries(a), Object.entries(b)];
  return before.length === after.length && before.every(([name, value]) => value === (b as Record<string, unknown>)[name]);
}
